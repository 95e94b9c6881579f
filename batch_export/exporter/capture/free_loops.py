"""Loops over a free size that go on from tensors to tensors, run as one operator while torch captures a model.

Arrives: what the code of `loop_rewriting.py` hands over: a loop's length, one round as a function, the names that go
on, the tensors that are read along an axis, the lists and tensors that are filled. Leaves: the operator's results in
their places. A round that no operator takes (shapes that change, a decision by data) is torch's error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.begun_numbers import NUMBERS, as_tensors, said_of_none
from batch_export.exporter.capture.free_sequences import FreeNumbers, FreeRows, Run

_OWN_REFERENCES = 4
"""To a list that only its function knows: its name, the arguments of a call, and who counts."""
_COUNTED = (torch.float32, torch.float64, torch.int64)
"""Of which a tensor without axes stays what it is beside another whole number."""
Along = tuple[Any, int]
"""A tensor, and the axis along which the loop goes."""


def steps_of(over: Any, is_backwards: bool) -> tuple[Any, Tensor | None]:
    """What a loop goes over: its steps, and the tensor of which it takes a slice at each of them.

    Args:
        over: whole numbers, a tensor, or its slices.
        is_backwards: whether the loop begins at their end.
    """
    if isinstance(over, FreeNumbers) and not over.is_plain:
        return over[::-1] if is_backwards else over, None
    rows = over.rows if isinstance(over, FreeRows) and not over.is_plain else over
    length: Any = rows.shape[0] if isinstance(rows, Tensor) and rows.dim() else None
    if not isinstance(length, torch.SymInt):
        return None, None
    return FreeNumbers([Run(0, 1, length)], range), rows.flip(0) if is_backwards else rows


def turned(of: Any, name: str) -> Any:
    """The attribute `T` or `mT` of something; of a matrix by a call."""
    is_matrix = isinstance(of, Tensor) and (name == "mT" or of.dim() == 2)
    return of.transpose(-2, -1) if is_matrix else getattr(of, name)


def is_free(
    body: Callable[..., Any],
    over: Any,
    carried: Sequence[Any],
    slices: Sequence[Along],
    lists: Sequence[Any],
    written: Sequence[Along],
    others: Sequence[Any],
    is_counted: bool,
    summed: Sequence[int],
) -> bool:
    """Whether a loop goes over a free size, from tensors to tensors, and what it fills is seen nowhere else meanwhile.

    Args:
        body: a round, as `run` has it.
        over: what the loop goes over.
        carried: what the names that go on stand for: tensors, or numbers that a round makes tensors.
        slices: what is read at the step's place.
        lists: lists that get one element each round.
        written: what is written to at the step's place.
        others: whatever else a round reads.
        is_counted: whether a round computes with the step as a number.
        summed: places of names that may only begin as numbers, since a tensor would be written to.
    """
    if not isinstance(over, FreeNumbers) or over.is_plain or not (lists or carried or written):
        return False
    if not _goes_by_one(over):
        return False
    numbers = [type(one) in NUMBERS for one in carried]
    if not all(numbers[place] for place in summed):
        return False
    going_on = [one for one, is_number in zip(carried, numbers, strict=True) if not is_number]
    filled, read = [one for one, _ in written], [*going_on, *(one for one, _ in slices)]
    if not all(isinstance(one, Tensor) for one in (*filled, *read)):
        return False
    if is_counted and not all(one.dtype in _COUNTED for one in read):
        return False
    if not all(type(one) is list and not one and sys.getrefcount(one) <= _OWN_REFERENCES for one in lists):
        return False
    memory = [StorageWeakRef(one.untyped_storage()) for one in filled]
    tensors = pytree.tree_leaves((read, [_content(one) for one in others]))
    seen = [StorageWeakRef(one.untyped_storage()) for one in tensors if isinstance(one, Tensor)]
    if any(one in seen for one in memory) or len(set(memory)) < len(memory):
        return False
    if not all(-one.dim() <= axis < one.dim() for one, axis in (*slices, *written)):
        return False
    return not any(numbers) or as_tensors(body, carried, slices) is not None


def _goes_by_one(over: FreeNumbers) -> bool:
    """Whether steps are places along an axis one after the other, none of them counted from its end."""
    run, *more = over.runs
    return not more and run.step in (1, -1) and statically_known_true(_lowest(run) >= 0)


def _lowest(run: Run) -> Any:
    """The lowest step; where the last one is, without steps 1 more than the first."""
    lowest = run.first if run.step == 1 else run.first - run.length + 1
    return 0 if statically_known_true(lowest == 0) else lowest


def _is_counted_from_zero(run: Run) -> bool:
    return isinstance(run.first, int) and run.first == 0 and run.step == 1


def _content(one: Any) -> Any:
    """Something that a round reads; of a module its tensors."""
    return [*one.parameters(), *one.buffers(), *vars(one).values()] if isinstance(one, torch.nn.Module) else one


def run(
    body: Callable[..., Any],
    over: FreeNumbers,
    carried: Sequence[Any],
    slices: Sequence[Along],
    lists: Sequence[Any],
    written: Sequence[Along],
) -> tuple[tuple[Tensor, ...], tuple[FreeRows, ...]]:
    """All rounds: the names that go on as the last round leaves them, and the lists; tensors are written to.

    Args:
        body: a round; takes the names that go on, the slices and the step as a tensor, gives these names, and what it
            appends and writes.
        over: the steps.
        carried: what the first round begins with; numbers become tensors.
        slices: what is read at the step's place.
        lists: lists that get one element each round, empty so far.
        written: what is written to at the step's place.
    """
    length = over.free_length()
    if not all(isinstance(one, Tensor) for one in carried):
        said_of_none(length)
        carried = as_tensors(body, carried, slices) or ()
    is_run = statically_known_true(length > 0)
    rounds = length if is_run else torch.sym_max(length, 1)
    first, is_backwards = _lowest(over.runs[0]), over.runs[0].step == -1

    def gone_over(one: Tensor, axis: int) -> Tensor:
        begin = first if isinstance(first, int) and not first else torch.sym_min(first, one.shape[axis])
        return one.narrow(axis, begin, length)

    def in_order(rows: Tensor) -> Tensor:
        return rows.flip(0) if is_backwards else rows

    given = [in_order(gone_over(one, axis).movedim(axis, 0)) for one, axis in slices]
    parts = [_plain(one) if is_run else _lengthened(one, rounds - length) for one in given]
    count = len(lists)

    def combine(state: list[Tensor], elements: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        now, made = body(tuple(state[: len(carried)]), tuple(elements[1:]), elements[0])
        return [_plain(one) for one in now or state], [_plain(one) for one in made]

    device = next((one.device for one in (*carried, *parts, *(one for one, _ in written))), None)
    steps = torch.arange(rounds, device=device)
    if not _is_counted_from_zero(over.runs[0]):
        steps = over.runs[0].first + over.runs[0].step * steps
    begun = [_plain(one) for one in carried] or [torch.zeros(())]  # a scan goes on from something
    last, found = scan(combine, begun, [steps, *parts], dim=0)
    if not is_run:
        was_run = torch.scalar_tensor(rounds - length, dtype=torch.int64) == 0
        last = [torch.where(was_run, after, before) for after, before in zip(last, begun, strict=True)]
        found = [rows.narrow(0, 0, length) for rows in found]
    for (one, axis), rows in zip(written, found[count:], strict=True):
        broadcast = rows.reshape(length, *[1] * (one.dim() - rows.dim()), *rows.shape[1:])
        gone_over(one, axis).copy_(in_order(broadcast).movedim(0, axis))
    return tuple(last)[: len(carried)], tuple(FreeRows(rows, list) for rows in found[:count])


def _lengthened(rows: Tensor, more: Any) -> Tensor:
    """Rows with rows of zeros behind them, in order in memory: no scan takes none, and of the round that there is then
    in place of none nothing is taken.
    """
    return _plain(functional.pad(rows, [0, 0] * (rows.dim() - 1) + [0, more]))


def _plain(tensor: Tensor) -> Tensor:
    """A copy whose memory is in order: what goes on has to look alike in every round."""
    return tensor.clone(memory_format=torch.contiguous_format)
