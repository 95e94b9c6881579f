"""Axes without a name that the capture tied to others, where the model takes them at sizes of their own.

Arrives: a captured program and what was asked for. Leaves: these axes in words, to be warned of. Where the model
refuses other sizes, or the program gives what it gives, nothing was lost.
"""

from __future__ import annotations

import torch

from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.examples import Examples
from batch_export.exporter.capture.guard_symbols import AskedAxis, readable
from batch_export.exporter.capture.other_inputs import Inputs
from batch_export.exporter.capture.trial import Outcome, is_fake, tried

_MOST = 4
"""Pairs of axes that are tried."""
_HARM = (Outcome.FAILS, Outcome.DIFFERS)


def told(captured: Captured, asked: shapes.DynamicShapes, module: torch.nn.Module, given: Inputs) -> list[str]:
    """Each group of such axes, in words."""
    pairs = _pairs(captured, asked)
    if not pairs or is_fake(module, *given):
        return []
    examples = Examples(asked, module, given)
    program = captured.program.module(check_guards=False)
    found: list[str] = []
    for kept, axis in pairs[:_MOST]:
        size = examples.given.get(axis.text, 0)
        made = [examples.at({axis.text: other}) for other in (size + 1, 2 * size)]
        if any(inputs is not None and tried(program, module, *inputs).outcome in _HARM for inputs in made):
            found.append(f"{_words(kept)} and {_words(axis)}")
    return found


def _words(axis: AskedAxis) -> str:
    return f"axis {axis.axis} of the input {readable(axis.where)}"


def _pairs(captured: Captured, asked: shapes.DynamicShapes) -> list[tuple[AskedAxis, AskedAxis]]:
    """Axes without a name that have another one's size in the program, or are computed from it, behind that one."""
    fakes = dict(zip(asked.forms, (fake for _, fake in shapes.user_tensors(captured.traced)), strict=False))
    groups: dict[str, list[AskedAxis]] = {}
    for axis in asked.axes:
        size: object = fakes[axis.where].shape[axis.axis] if axis.where in fakes else 0
        if isinstance(size, torch.SymInt):
            groups.setdefault(str(size.node.expr), []).append(axis)
    ordered = [sorted(group, key=lambda axis: not axis.name) for group in groups.values()]
    pairs = [(group[0], axis) for group in ordered for axis in group[1:] if not axis.name]
    symbols = captured.symbols
    if symbols is not None:
        for symbol, (_, others) in symbols.solved.items():
            computed, sources = symbols.axes.get(symbol), [symbols.axes[one] for one in others if one in symbols.axes]
            if computed is not None and not computed.name and sources and computed in asked.axes:
                pairs.append((sources[0], computed))
    return list({frozenset(pair): pair for pair in pairs}.values())
