"""Python's decisions about sizes that turn out otherwise at a size of 1: `if x.shape[0] == 1`, `if batch > 1`.

Arrives: a captured program, the conditions that the model's lines decided, the model and its example inputs. Leaves: a
guard for each axis at whose size 1 the model does something else. torch takes a free size for 2 or more, so that such a
condition is decided without a guard; model and program are run at 1, and agree where both ways give the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.assumptions import difference
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.guard_sources import Decision
from batch_export.exporter.capture.guard_symbols import AskedAxis
from batch_export.exporter.capture.guards import Guard
from batch_export.exporter.capture.other_inputs import at_sizes

_WHAT = "the model decides otherwise"


def decided_otherwise(
    captured: Captured,
    decisions: Iterable[Decision],
    axes: Mapping[str, AskedAxis],
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> list[Guard]:
    """A guard for each axis whose size 1 the program does not hold for, because of a decision.

    Args:
        captured: the program.
        decisions: what Python decided.
        axes: torch's symbol -> the axis as it was asked for.
        module: the model.
        args: its positional example inputs.
        kwargs: its keyword example inputs.
    """
    turned = {name: source for name, source in _turned(decisions, axes)}
    tensors = [*module.state_dict().values(), *pytree.tree_leaves((args, dict(kwargs)))]
    if not turned or any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return []  # nothing to try, or nothing to try it with
    found = []
    for name, source in turned.items():
        made = at_sizes(captured, args, kwargs, {one: 1 for one, axis in axes.items() if axis.text == name})
        if made is None or not difference(captured.program, module, *made, is_example=False):
            continue
        of_name = [axis for axis in axes.values() if axis.text == name]
        required = any(axis.required for axis in of_name)
        narrows = () if required else tuple((axis.where, axis.axis) for axis in of_name)
        found.append(Guard(f"{name} != 1", (name,), source, required, (), narrows, consequence=_WHAT))
    return found


def _turned(decisions: Iterable[Decision], axes: Mapping[str, AskedAxis]) -> Iterator[tuple[str, str]]:
    """Axes, with the line, at whose size 1 a condition may be otherwise than at a larger one."""
    seen = set()
    for decision in decisions:
        symbols = sorted(decision.expression.free_symbols, key=str)
        if not all(str(symbol) in axes for symbol in symbols):
            continue
        for symbol in symbols:
            axis = axes[str(symbol)]
            if axis.text in seen or axis.never_one or axis.lowest > 2:
                continue
            others = [one for one in symbols if one != symbol]
            for sizes in itertools.islice(itertools.product((2, 3, 5, 8), repeat=len(others)), 16):
                rest = decision.expression.xreplace(dict(zip(others, sizes, strict=True)))
                truths = [rest.xreplace({symbol: size}) == True for size in _AROUND]  # noqa: E712  (a sympy value)
                if len(set(truths)) > 1:
                    seen.add(axis.text)
                    yield axis.text, decision.source
                    break


_AROUND = (1, 2)
