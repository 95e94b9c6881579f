"""The part of an axis that a loop over a free size goes over: what it reads there, and what it writes.

Arrives: the loop's steps, tensors and axes. Leaves: rows along the first axis, in the loop's order; tensors written to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard

import sympy
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional

from batch_export.exporter.capture.free_sequences import FreeNumbers, FreeRows, Run
from batch_export.exporter.capture.loop_windows import At, Later, Places, expression, of_rounds


def goes_by_one(over: FreeNumbers) -> bool:
    """Whether steps are places along an axis one after the other, none of them counted from its end."""
    run, *more = over.runs
    return not more and _is_by_one(run) and statically_known_true(_lowest(run) >= 0)


def goes_evenly(over: FreeNumbers) -> bool:
    """The same, or whether they are further apart, always as far."""
    run, *more = over.runs
    return goes_by_one(over) or (not more and isinstance(run.step, int) and abs(run.step) > 1)


def _is_by_one(run: Run) -> bool:
    return isinstance(run.step, int) and abs(run.step) == 1


def _lowest(run: Run) -> Any:
    """The lowest step; where the last one is, without steps 1 more than the first."""
    if run.step == 1:
        return run.first
    lowest = run.first - run.length + 1
    is_none = sympy.expand(expression(run.first) - of_rounds(run.length) + 1) == 0
    return 0 if is_none or statically_known_true(lowest == 0) else lowest


def rows_of(over: Any) -> Any:
    """The tensor whose slices along the first axis something stands for; itself where it stands for none."""
    return over.rows if isinstance(over, FreeRows) and not over.is_plain and over.tail is None else over


Place = At | Later | int
"""How many places behind the step's, the place by the step, or one that the first round does not come to."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The part of an axis that a loop goes over, in the order of memory and of the loop.

    Attributes:
        first: the lowest step.
        length: how many steps there are.
        is_backwards: whether the loop begins at their end.
        steps: the steps, which may be further apart.
    """

    first: Any
    length: Any
    is_backwards: bool
    steps: Run

    @classmethod
    def of(cls, over: FreeNumbers) -> Reach:
        """The reach of a loop over some steps."""
        steps = over.runs[0]
        return cls(_lowest(steps), over.free_length(), steps.step == -1, steps)

    def places(self, one: Tensor, axis: int, at: Place) -> Places | None:
        """Places that are not simply one by one, if an axis has all of them."""
        found = Places.of(self.steps, at)
        return None if found is None else found.within(one.shape[axis])

    def _is_simple(self, at: Place) -> TypeGuard[int]:
        return isinstance(at, int) and _is_by_one(self.steps)

    def part(self, one: Tensor, axis: int, beside: int = 0) -> Tensor:
        """That part of a tensor, or what lies so many places behind it."""
        first = self.first + beside
        begin = first if isinstance(first, int) and not first else torch.sym_min(first, one.shape[axis])
        return one.narrow(axis, begin, self.length)

    def is_within(self, one: Tensor, axis: int, beside: Place) -> bool:
        """Whether a tensor has all places that are so many behind the steps; one may be counted from its end."""
        if not self._is_simple(beside):
            return self.places(one, axis, beside) is not None
        if not beside:
            return True
        first, length, size = self.first + beside, self.length, one.shape[axis]
        left = expression(size) - expression(first) - of_rounds(length)
        if sympy.simplify(left).is_nonnegative is not True:
            return self.places(one, axis, beside) is not None
        return statically_known_true(first >= 0) or self._is_turned(first)

    @staticmethod
    def _is_turned(first: Any) -> bool:
        """Whether the first place is the last of all."""
        return isinstance(first, int) and first == -1

    def in_order(self, rows: Tensor) -> Tensor:
        """What lies along the first axis in the other order, where the loop goes backwards."""
        return rows.flip(0) if self.is_backwards else rows

    def row(self, one: Tensor, axis: int, beside: Place) -> Tensor:
        """A tensor like what a round reads, of zeros: as an index, these are within what has elements."""
        places = None if self._is_simple(beside) else self.places(one, axis, beside)
        others = [size for place, size in enumerate(one.shape) if place != axis % one.dim()]
        return one.new_zeros(others if places is None else places.shape(one, axis))

    def rows(self, one: Tensor, axis: int, beside: Place = 0) -> Tensor:
        """What a loop reads of a tensor, so many places behind the steps, along the first axis, in the loop's order."""
        if not self._is_simple(beside):
            places = self.places(one, axis, beside)
            assert places is not None  # `is_within` has asked
            return places.rows(one, axis)
        if beside and self._is_turned(self.first + beside):
            moved = one.movedim(axis, 0)
            return self.in_order(torch.cat([moved[-1:], moved]).narrow(0, 0, self.length))
        return self.in_order(self.part(one, axis, beside).movedim(axis, 0))

    def are_apart(self, one: Tensor, axis: int, beside: Place) -> bool:
        """Whether no two rounds write to one place."""
        places = None if self._is_simple(beside) else self.places(one, axis, beside)
        return places is None or places.are_apart

    def write(self, one: Tensor, axis: int, beside: Place, is_added: bool, rows: Tensor) -> None:
        """Writes what `rows` gives of a tensor, or adds it; numbers go into all of a slice."""
        if not self._is_simple(beside):
            places = self.places(one, axis, beside)
            assert places is not None
            places.write(one, axis, rows, is_added=is_added)
            return
        broadcast = rows.reshape(self.length, *[1] * (one.dim() - rows.dim()), *rows.shape[1:])
        given, part = self.in_order(broadcast).movedim(0, axis), self.part(one, axis, beside)
        part.add_(given) if is_added else part.copy_(given)

    def before(self, one: Tensor, axis: int, beside: int) -> Tensor:
        """What a tensor holds in front of where it is written first, in the loop's order; of place 0 the last one."""
        place = (self.first + self.length if self.is_backwards else self.first - 1) + beside
        if isinstance(place, int) and statically_known_true(one.shape[axis] > max(place, 0)):
            return one.select(axis, place).clone()
        others = [0, 0] * (one.dim() - 1 - axis % one.dim())
        if self._is_turned(place):
            return functional.pad(one, [*others, 1, 0]).select(axis, -1)  # without rounds there may be no such place
        return functional.pad(one, [*others, 0, 1]).select(
            axis, place if isinstance(place, int) else torch.sym_max(place, 0)
        )
