"""Loops over a free size that go on from tensors to tensors, run as one operator while torch captures a model.

Arrives: what the code of `loop_rewriting.py` hands over: a loop's length, one round as a function, the names that go
on, the tensors that are read along an axis, the lists and tensors that are filled. Leaves: the operator's results in
their places. A round that no operator takes (shapes that change, a decision by data) is torch's error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.begun_numbers import NUMBERS, begins_as_tensors, says_of_none
from batch_export.exporter.capture.free_sequences import FreeNumbers, FreeRows, Run
from batch_export.exporter.capture.kept_rows import note_read

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
    has_branches: bool,
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
        has_branches: whether a round has an `if`, which data may decide.
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
    besides = pytree.tree_leaves([_content(one) for one in others])
    seen = [StorageWeakRef(one.untyped_storage()) for one in (*read, *besides) if isinstance(one, Tensor)]
    if any(one in seen for one in memory) or len(set(memory)) < len(memory):
        return False
    if not all(-one.dim() <= axis < one.dim() for one, axis in (*slices, *written)):
        return False
    return not (any(numbers) or has_branches) or begins_as_tensors(body, carried, slices, besides)


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


@dataclass(frozen=True, slots=True)
class _Reach:
    """The part of an axis that a loop goes over, in the order of memory and of the loop.

    Attributes:
        first: the lowest step.
        length: how many steps there are.
        is_backwards: whether the loop begins at their end.
    """

    first: Any
    length: Any
    is_backwards: bool

    def part(self, one: Tensor, axis: int) -> Tensor:
        """That part of a tensor."""
        first = self.first
        begin = first if isinstance(first, int) and not first else torch.sym_min(first, one.shape[axis])
        return one.narrow(axis, begin, self.length)

    def in_order(self, rows: Tensor) -> Tensor:
        """What lies along the first axis in the other order, where the loop goes backwards."""
        return rows.flip(0) if self.is_backwards else rows

    def rows(self, one: Tensor, axis: int) -> Tensor:
        """What a loop reads of a tensor, along the first axis, in the loop's order."""
        return self.in_order(self.part(one, axis).movedim(axis, 0))

    def write(self, one: Tensor, axis: int, rows: Tensor) -> None:
        """Writes what `rows` gives of a tensor; numbers go into all of a slice."""
        broadcast = rows.reshape(self.length, *[1] * (one.dim() - rows.dim()), *rows.shape[1:])
        self.part(one, axis).copy_(self.in_order(broadcast).movedim(0, axis))


def run(
    body: Callable[..., Any],
    over: FreeNumbers,
    carried: Sequence[Any],
    slices: Sequence[Along],
    lists: Sequence[Any],
    written: Sequence[Along],
) -> tuple[tuple[Tensor, ...], tuple[FreeRows, ...]]:
    """All rounds: the names that go on as the last round leaves them, and the lists; tensors are written to.

    Where a name begins as a number the first round is run by itself: it does what eager does with a number.

    Args:
        body: a round; takes the names that go on, the slices and the step as a tensor, gives these names, and what it
            appends and writes.
        over: the steps.
        carried: what the first round begins with.
        slices: what is read at the step's place.
        lists: lists that get one element each round, empty so far.
        written: what is written to at the step's place.
    """
    steps, length = over.runs[0], over.free_length()
    reach = _Reach(_lowest(steps), length, steps.step == -1)
    rows = [reach.rows(one, axis) for one, axis in slices]
    begun = [one for one in carried if isinstance(one, Tensor)]
    device = next((one.device for one in (*begun, *(one for one, _ in (*slices, *written)))), None)
    if len(begun) == len(carried):
        last, found = _rounds(body, steps, carried, rows, device)
    else:
        says_of_none(length)
        last, found = _begun_by_one(body, steps, carried, rows, device)
    kept = [*(one for one, _ in slices), *last, *found[: len(lists)]]
    note_read(kept, begun, length)
    for (one, axis), made in zip(written, found[len(lists) :], strict=True):
        reach.write(one, axis, made)
    return tuple(last), tuple(FreeRows(made, list) for made in found[: len(lists)])


def _begun_by_one(
    body: Callable[..., Any], steps: Run, carried: Sequence[Any], rows: Sequence[Tensor], device: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """The first round, and the others from what it gives; without rounds what began, as tensors of that shape.

    Args:
        body: a round.
        steps: the steps.
        carried: what the first round begins with, numbers among it.
        rows: what is read, along the first axis.
        device: where the step's tensor lies.
    """
    none = torch.sym_max(1 - steps.length, 0)
    is_run = statically_known_true(steps.length > 0)
    firsts = [(one if is_run else _lengthened(one, none)).select(0, 0) for one in rows]
    now, made = body(tuple(carried), tuple(firsts), torch.scalar_tensor(steps.first, dtype=torch.int64, device=device))
    more = Run(steps.at(1), steps.step, steps.length - 1 + (0 if is_run else none))
    last, found = _rounds(body, more, list(now), [one[1:] for one in rows], device)
    found = [torch.cat([one[None], others]) for one, others in zip(made, found, strict=True)]
    return (last, found) if is_run else _of_real_rounds(last, found, carried, steps.length, none)


def _rounds(
    body: Callable[..., Any], steps: Run, carried: Sequence[Tensor], rows: Sequence[Tensor], device: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """Rounds as one operator: what goes on, and what each of them gives besides, along the first axis.

    Args:
        body: a round.
        steps: the steps.
        carried: what the first of them begins with.
        rows: what is read, along the first axis.
        device: where the steps' tensor lies.
    """
    length = steps.length
    is_run = statically_known_true(length > 0)
    rounds = length if is_run else torch.sym_max(length, 1)
    parts = [_plain(one) if is_run else _lengthened(one, rounds - length) for one in rows]

    def combine(state: list[Tensor], elements: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        now, made = body(tuple(state[: len(carried)]), tuple(elements[1:]), elements[0])
        return [_plain(one) for one in now or state], [_plain(one) for one in made]

    counted = torch.arange(rounds, device=device)
    if not _is_counted_from_zero(steps):
        counted = steps.first + steps.step * counted
    begun = [_plain(one) for one in carried] or [torch.zeros(())]  # a scan goes on from something
    last, found = scan(combine, begun, [counted, *parts], dim=0)
    last, found = list(last)[: len(carried)], list(found)
    return (last, found) if is_run else _of_real_rounds(last, found, carried, length, rounds - length)


def _of_real_rounds(
    last: Sequence[Tensor], found: Sequence[Tensor], begun: Sequence[Any], length: Any, more: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """What rounds give where there may have been one in place of none: then what began, and no rows.

    Args:
        last: what goes on behind the last round.
        found: what rounds give besides, along the first axis.
        begun: what the first round began with.
        length: how many rounds there should have been.
        more: how many there were besides.
    """
    was_run = torch.scalar_tensor(more, dtype=torch.int64) == 0
    kept = [torch.where(was_run, after, before) for after, before in zip(last, begun, strict=True)]
    return kept, [one.narrow(0, 0, length) for one in found]


def _lengthened(rows: Tensor, more: Any) -> Tensor:
    """Rows with rows of zeros behind them, in order in memory: no scan takes none, and of the round that there is then
    in place of none nothing is taken.
    """
    return _plain(functional.pad(rows, [0, 0] * (rows.dim() - 1) + [0, more]))


def _plain(tensor: Tensor) -> Tensor:
    """A copy whose memory is in order: what goes on has to look alike in every round."""
    return tensor.clone(memory_format=torch.contiguous_format)
