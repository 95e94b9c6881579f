"""The part of an axis that a loop over a free size goes over: what it reads there, and what it writes.

Arrives: the loop's steps, tensors and axes. Leaves: rows along the first axis, in the loop's order; tensors written to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy.functions import Max

from batch_export.exporter.capture.free_sequences import FreeNumbers, FreeRows, Run


def goes_by_one(over: FreeNumbers) -> bool:
    """Whether steps are places along an axis one after the other, none of them counted from its end."""
    run, *more = over.runs
    return not more and run.step in (1, -1) and statically_known_true(_lowest(run) >= 0)


def _lowest(run: Run) -> Any:
    """The lowest step; where the last one is, without steps 1 more than the first."""
    lowest = run.first if run.step == 1 else run.first - run.length + 1
    return 0 if statically_known_true(lowest == 0) else lowest


def rows_of(over: Any) -> Any:
    """The tensor whose slices along the first axis something stands for; itself where it stands for none."""
    return over.rows if isinstance(over, FreeRows) and not over.is_plain else over


@dataclass(frozen=True, slots=True)
class Reach:
    """The part of an axis that a loop goes over, in the order of memory and of the loop.

    Attributes:
        first: the lowest step.
        length: how many steps there are.
        is_backwards: whether the loop begins at their end.
    """

    first: Any
    length: Any
    is_backwards: bool

    @classmethod
    def of(cls, over: FreeNumbers) -> Reach:
        """The reach of a loop over some steps."""
        steps = over.runs[0]
        return cls(_lowest(steps), over.free_length(), steps.step == -1)

    def part(self, one: Tensor, axis: int, beside: int = 0) -> Tensor:
        """That part of a tensor, or what lies so many places behind it."""
        first = self.first + beside
        begin = first if isinstance(first, int) and not first else torch.sym_min(first, one.shape[axis])
        return one.narrow(axis, begin, self.length)

    def is_within(self, one: Tensor, axis: int, beside: int) -> bool:
        """Whether a tensor has all places that are so many behind the steps; one may be counted from its end."""
        if not beside:
            return True
        first, length, size = self.first + beside, self.length, one.shape[axis]
        count = length.node.expr if isinstance(length, torch.SymInt) else sympy.Integer(length)
        known = [part for part in count.args if part != 0] if isinstance(count, Max) and 0 in count.args else [count]
        begin, whole = (part.node.expr if isinstance(part, torch.SymInt) else part for part in (first, size))
        is_below = len(known) == 1 and sympy.simplify(whole - begin - known[0]).is_nonnegative is True
        return is_below and (statically_known_true(first >= 0) or self._is_turned(first))

    @staticmethod
    def _is_turned(first: Any) -> bool:
        """Whether the first place is the last of all."""
        return isinstance(first, int) and first == -1

    def in_order(self, rows: Tensor) -> Tensor:
        """What lies along the first axis in the other order, where the loop goes backwards."""
        return rows.flip(0) if self.is_backwards else rows

    def rows(self, one: Tensor, axis: int, beside: int = 0) -> Tensor:
        """What a loop reads of a tensor, so many places behind the steps, along the first axis, in the loop's order."""
        if beside and self._is_turned(self.first + beside):
            moved = one.movedim(axis, 0)
            return self.in_order(torch.cat([moved[-1:], moved]).narrow(0, 0, self.length))
        return self.in_order(self.part(one, axis, beside).movedim(axis, 0))

    def write(self, one: Tensor, axis: int, beside: int, rows: Tensor) -> None:
        """Writes what `rows` gives of a tensor; numbers go into all of a slice."""
        broadcast = rows.reshape(self.length, *[1] * (one.dim() - rows.dim()), *rows.shape[1:])
        self.part(one, axis, beside).copy_(self.in_order(broadcast).movedim(0, axis))

    def before(self, one: Tensor, axis: int, beside: int) -> Tensor:
        """What a tensor holds in front of where it is written first, in the loop's order; of place 0 the last one."""
        place = self.first + self.length if self.is_backwards else self.first - 1
        return one.select(axis, place + beside).clone()
