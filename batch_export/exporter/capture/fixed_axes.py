"""Axes left to the exporter that the file fixes, where the model takes them at other sizes.

Arrives: a captured program, and what was asked for before axes were given up. Leaves: these axes in words, with the
line that made a number of them, to be warned of. Where the model refuses other sizes, nothing was lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.capture.fake_runs import refusal
from batch_export.exporter.capture.guard_symbols import AskedAxis, readable
from batch_export.exporter.capture.guards import environment_of, fixed_sizes
from batch_export.exporter.capture.other_inputs import Inputs, within
from batch_export.exporter.capture.trial import accepts, is_fake

Place = tuple[str, int]


def lines(captured: Captured, asked: Sequence[AskedAxis], aliases: Mapping[str, str]) -> dict[Place, str]:
    """Where (`file:line`) a capture made numbers of axes, as far as torch knows it.

    Args:
        captured: what was captured while the axes were still asked for.
        asked, aliases: as in `guards.fixed_sizes`.
    """
    environment = environment_of(captured.traced)
    known = fixed_sizes(environment, asked, aliases, with_left=True)
    found = {(axis.where, axis.axis): source for axis, _, source in known if source}
    for guard in captured.guards:
        found.update(dict.fromkeys(guard.fixes, guard.source))
    return found


def told(
    captured: Captured,
    asked: Sequence[AskedAxis],
    positions: Mapping[str, int],
    sources: Mapping[Place, str],
    module: torch.nn.Module,
    given: Inputs,
) -> list[str]:
    """Each such axis, in words.

    Args:
        captured: the program that the caller gets.
        asked: the axes as they were asked for.
        positions: of each input among the flattened ones.
        sources: what `lines` found.
        module: the model.
        given: its example inputs.
    """
    left = [axis for axis in asked if not axis.required and axis.where in positions]
    said = {place for guard in captured.fixed for place in guard.narrows}
    fakes = dict(zip(positions, (fake for _, fake in shapes.user_tensors(captured.traced)), strict=False))
    fixed = [axis for axis in left if axis.where in fakes and _is_number(fakes[axis.where].shape[axis.axis])]
    found = []
    for axis in fixed:
        if (axis.where, axis.axis) in said:
            continue
        if any(_is_taken(module, inputs) for inputs in _resized(axis, fixed, positions, given)):
            size = int(fakes[axis.where].shape[axis.axis])
            source = sources.get((axis.where, axis.axis), "")
            place = f"{readable(axis.where)}.shape[{axis.axis}]"
            found.append(f"{place} is fixed in the file at {size}{f' (at {source})' if source else ''}")
    return found


def _is_number(size: object) -> bool:
    return not isinstance(size, torch.SymInt) or bool(size.node.expr.is_number)


def _resized(
    axis: AskedAxis, fixed: Sequence[AskedAxis], positions: Mapping[str, int], given: Inputs
) -> Iterator[Inputs]:
    """The example at another size of the axis; then of all fixed axes that have its size, which may be one."""
    leaves, tree = pytree.tree_flatten(given)
    size = int(leaves[positions[axis.where]].shape[axis.axis])
    alike = [one for one in fixed if int(leaves[positions[one.where]].shape[one.axis]) == size]
    for changed in ([axis], alike) if len(alike) > 1 else ([axis],):
        made = list(leaves)
        for position in {positions[one.where] for one in changed}:
            shape = list(leaves[position].shape)
            for one in changed:
                if positions[one.where] == position:
                    shape[one.axis] = size + 1
            made[position] = within(leaves[position], shape, torch.Generator().manual_seed(0))
        yield pytree.tree_unflatten(made, tree)


def _is_taken(module: torch.nn.Module, inputs: Inputs) -> bool:
    """Whether the model runs there: without numbers first, which is quick where it does not."""
    if refusal(module, *inputs):
        return False
    return is_fake(module, *inputs) or accepts(module, *inputs)
