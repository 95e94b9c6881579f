"""Rounds of tensors as one operator, torch's scan, also where there may be none.

Arrives: a round as a function of tensors, the steps, what the first round begins with, and what is read along the first
axis. Leaves: what goes on behind the last round, and what each of them gives besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import traced_rounds
from batch_export.exporter.capture.free_sequences import Run
from batch_export.exporter.capture.loop_pieces import SizeByDataError


def is_like(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one dtype, and surely one shape."""
    is_known = one.dtype == other.dtype and one.dim() == other.dim()
    return is_known and all(statically_known_true(a == b) for a, b in zip(one.shape, other.shape, strict=True))


def _becomes(one: Tensor, other: Tensor) -> bool:
    """Whether a tensor is surely of another's shape, or would be if its axes of one place were repeated."""
    is_known = one.dtype == other.dtype and one.dim() == other.dim()
    pairs = zip(one.shape, other.shape, strict=True)
    return is_known and all(statically_known_true(a == 1) or statically_known_true(a == b) for a, b in pairs)


def on_leaves(body: Callable[..., Any], form: pytree.TreeSpec) -> Callable[..., Any]:
    """A round of tensors one after the other, behind the first one.

    Args:
        body: the round.
        form: in what the tensors lie.
    """
    count = form.num_children
    if form == pytree.tree_structure([None] * count):
        return lambda state, slices, step: body(tuple(state), slices, step, False)

    def on_leaves(state: Sequence[Tensor], slices: Sequence[Tensor], step: Tensor) -> tuple[Any, Any]:
        now, made = body(pytree.tree_unflatten(list(state), form), slices, step, False)
        return pytree.tree_leaves(list(now)), made

    return on_leaves


def rounds(
    body: Callable[..., Any],
    steps: Run,
    carried: Sequence[Tensor],
    rows: Sequence[Tensor],
    device: Any,
    *,
    is_traced: bool = False,
) -> tuple[list[Tensor], list[Tensor]]:
    """Rounds as one operator: what goes on, and what each of them gives besides, along the first axis.

    Args:
        body: a round of tensors.
        steps: the steps.
        carried: what the first of them begins with.
        rows: what is read, along the first axis.
        device: where the steps' tensor lies.
        is_traced: whether dynamo takes no such round (`traced_rounds.py`).
    """
    length = steps.length
    is_run = statically_known_true(length > 0)

    def combine(state: list[Tensor], elements: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        now, made = body(tuple(state[: len(carried)]), tuple(elements[1:]), elements[0])
        if not all(isinstance(one, Tensor) for one in made):
            raise SizeByDataError("what it fills gets something else than tensors and numbers")
        return [plain(one) for one in now or state], [plain(one) for one in made]

    begun = [plain(one) for one in carried] or [torch.zeros(())]  # a scan goes on from something
    count = length if is_run else torch.sym_max(length, 1)
    counted = _counted(steps, count, device, 0 if is_run else count - length)
    parts = [plain(one) if is_run else lengthened(one, count - length) for one in rows]
    if is_traced:
        made = traced_rounds.traced(combine, begun, [counted, *parts], None if is_run else length)
        if made is not None:
            return list(made[0])[: len(carried)], list(made[1])
    made = traced_rounds.traced(combine, begun, [counted, *parts]) if is_traced else None
    last, found = made or scan(combine, begun, [counted, *parts], dim=0)
    last, found = list(last)[: len(carried)], list(found)
    return (last, found) if is_run else of_real_rounds(last, found, carried, length, count - length)


def _counted(steps: Run, count: Any, device: Any, more: Any) -> Tensor:
    """The first so many steps."""
    places = torch.arange(count, device=device)
    is_plain = isinstance(steps.first, int) and steps.first == 0 and steps.step == 1
    return places if is_plain else first_number(steps, more) + steps.step * places


def first_number(steps: Run, more: Any) -> Any:
    """The first step; 0 in a round in place of none, where `more` is 1: what is read may have no later place."""
    return steps.first if isinstance(more, int) and more == 0 else steps.first * (1 - more)


def of_real_rounds(
    last: Sequence[Tensor], found: Sequence[Tensor], begun: Sequence[Any], length: Any, more: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """What rounds give where there may have been one in place of none: then what began, and no rows.

    Args:
        last: what goes on behind the last round.
        found: what rounds give besides, along the first axis.
        begun: what the first round began with; nothing where it is not known.
        length: how many rounds there should have been.
        more: how many there were besides.
    """
    was_run = torch.scalar_tensor(more, dtype=torch.int64) == 0
    kept = [
        after
        if before is None or (isinstance(before, Tensor) and not _becomes(before, after))
        else torch.where(was_run, after, before)
        for after, before in zip(last, begun, strict=True)
    ]
    return kept, [one.narrow(0, 0, length) for one in found]


def lengthened(rows: Tensor, more: Any) -> Tensor:
    """Rows with rows of zeros behind them, in order in memory: no scan takes none, and of the round that there is then
    in place of none nothing is taken.
    """
    return plain(functional.pad(rows, [0, 0] * (rows.dim() - 1) + [0, more]))


def plain(tensor: Tensor) -> Tensor:
    """A copy whose memory is in order: what goes on has to look alike in every round."""
    return tensor.clone(memory_format=torch.contiguous_format)
