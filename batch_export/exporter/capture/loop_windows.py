"""Places of an axis that a loop comes to otherwise than one by one: `x[:, t : t + k]`, `x[:, n - 1 - t]`, `x[t * 2]`.

Arrives: a loop's steps and the place as a function of the step, which goes up or down by as many places in each round.
Leaves: whether all places are there, what rounds read there, and what they write there, by whole numbers as an index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import Tensor
from torch.utils._sympy.functions import FloorDiv, Max

from batch_export.exporter.capture.free_sequences import Run

At = Callable[[Any], tuple[Any, Any]]
"""The place at a step, and the one behind the last place of a window; None where there is no window."""


@dataclass(frozen=True, slots=True)
class Later:
    """Places that the first round does not come to, where there may be none."""

    at: At | int


@dataclass(frozen=True, slots=True)
class Places:
    """Where rounds read or write.

    Attributes:
        first: the first round's place, of a window its lowest one.
        stride: how many places the next round's is further, or back.
        width: how long a window is; None of a single place.
        length: how many rounds there are.
        is_later: whether the first round does not read there.
    """

    first: Any
    stride: int
    width: int | None
    length: Any
    is_later: bool = False

    @classmethod
    def of(cls, steps: Run, at: At | Later | int) -> Places | None:
        """The places of some steps; None where they are no numbers, or are not known to be alike in all rounds.

        Args:
            steps: the steps.
            at: the place at a step, or how many places behind the step it is.
        """
        is_later = isinstance(at, Later)
        place = at.at if isinstance(at, Later) else at
        given = (lambda step: (step + place, None)) if isinstance(place, int) else place
        try:
            (first, end), (second, other) = given(steps.first), given(steps.at(1))
            width = None if end is None else _number(end - first)
            stride, is_alike = _number(second - first), end is None or _number(other - second) == width
        except Exception:  # the code's own, of things that are no numbers
            return None
        is_place = all(isinstance(one, (int, torch.SymInt)) for one in (first, second))
        if not is_place or not is_alike or not stride or (end is not None and (width is None or width < 1)):
            return None
        return cls(first, stride, width, steps.length, is_later)

    def within(self, size: Any) -> Places | None:
        """The same counted from the axis' beginning, if an axis of that size has all of them; None otherwise."""
        first, whole, width = expression(self.first), expression(size), self.width or 1
        ends = first + (self.stride if self.is_later else 0), first + self.stride * (of_rounds(self.length) - 1)
        low, high = ends if self.stride > 0 else ends[::-1]
        if self.width is None and _never_negative(-1 - high) and _never_negative(low + whole):
            return Places(self.first + size, self.stride, None, self.length, self.is_later)
        if _never_negative(low) and _never_negative(whole - high - width):
            return self
        return self if self._is_asked(size) else None

    def _is_asked(self, size: Any) -> bool:
        """Whether an axis of a size of its own has all places in the example: a guard, which eager may have, too."""
        known = expression(size).free_symbols
        if not known or known <= expression(self.length).free_symbols | expression(self.first).free_symbols:
            return False
        first = self.first + (self.stride if self.is_later else 0)
        last = self.first + self.stride * (torch.sym_max(self.length, 2 if self.is_later else 1) - 1)
        low, high = (first, last) if self.stride > 0 else (last, first)
        return bool(low >= 0) and bool(high + (self.width or 1) <= size)

    def shape(self, one: Tensor, axis: int) -> list[Any]:
        """The shape of what a round reads of a tensor."""
        axis %= one.dim()
        return [*one.shape[:axis], *([] if self.width is None else [self.width]), *one.shape[axis + 1 :]]

    def rows(self, one: Tensor, axis: int) -> Tensor:
        """What rounds read of a tensor, along the first axis."""
        axis %= one.dim()
        taken = one.index_select(axis, self._index(one, one.shape[axis] if self.is_later else None))
        if self.width is None:
            return taken.movedim(axis, 0)
        windows: Tensor = taken.unflatten(axis, (self.length, self.width))
        return windows.movedim(axis, 0)

    def write(self, one: Tensor, axis: int, rows: Tensor, *, is_added: bool) -> None:
        """Writes to a tensor what rounds give for their places, or adds it, which they may do to one place.

        Args:
            one: the tensor.
            axis: that of the places.
            rows: what rounds give; numbers go into all of their place.
            is_added: whether it is added to what is there.
        """
        axis %= one.dim()
        shape = [self.length, *self.shape(one, axis)]
        spread = rows.reshape(self.length, *[1] * (len(shape) - rows.dim()), *rows.shape[1:]).expand(shape)
        spread = spread.movedim(0, axis).to(one.dtype)
        if self.width is not None:  # in order in memory nothing is asked of sizes
            spread = spread.clone(memory_format=torch.contiguous_format).flatten(axis, axis + 1)
        index = self._index(one)
        one.index_add_(axis, index, spread) if is_added else one.index_copy_(axis, index, spread)

    @property
    def are_apart(self) -> bool:
        """Whether no two rounds come to one place."""
        return abs(self.stride) >= (self.width or 1)

    def _index(self, one: Tensor, size: Any = None) -> Tensor:
        places: Tensor = torch.arange(self.length, device=one.device) * self.stride + self.first
        if self.width is not None:
            places = (places.unsqueeze(1) + torch.arange(self.width, device=one.device)).flatten()
        return places if size is None else torch.minimum(places.clamp(min=0), torch.tensor(0) + (size - 1))


def of_rounds(length: Any) -> sympy.Expr:
    """How many rounds there are where there are any."""
    count = expression(length)
    known = [one for one in count.args if one != 0] if isinstance(count, Max) else []
    return known[0] if len(known) == 1 < len(count.args) else count


def _number(size: Any) -> int | None:
    """A number that is the same at all sizes."""
    made = sympy.expand(expression(size))
    return int(made) if made.is_Integer else None


def expression(size: Any) -> sympy.Expr:
    return size.node.expr if isinstance(size, torch.SymInt) else sympy.sympify(size)


def _never_negative(size: sympy.Expr) -> bool:
    """Whether a number is 0 or more at all sizes; a rounded quotient is taken for the least that it may be."""
    least = sympy.Add(*(_least(one) for one in sympy.Add.make_args(sympy.expand(size))))
    return sympy.expand(least).is_nonnegative is True


def _least(term: sympy.Expr) -> sympy.Expr:
    """The least that a term of a sum may be, of a number times a rounded quotient without the rounding."""
    times, quotient = term.as_coeff_Mul()
    if not isinstance(quotient, FloorDiv) or not quotient.args[1].is_Integer or quotient.args[1] < 1:
        return term
    base, by = quotient.args
    return times * base / by if times < 0 else times * (base - by + 1) / by
