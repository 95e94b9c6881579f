"""Parts of a tensor along a free axis of which one is used: `x.unbind(0)[0]`, `x.split(3)[-1]`.

Arrives: calls of `unbind` and `split` while torch captures a model. Leaves: for a free axis a list of free length, of
which each element is a slice; whatever else is done with it makes it the plain list that torch gives, which holds the
axis to the example's number of parts.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from batch_export.exporter.capture.free_sequences import FreeRows, FreeSequence, Size

_UNBINDS = (torch.unbind, Tensor.unbind)
_SPLITS = (torch.split, Tensor.split)
_MADE: ContextVar[list[object] | None] = ContextVar("_MADE", default=None)


class FreeSlices(FreeRows):
    """The slices of a tensor along a free axis.

    Of a size that is computed (`min(2, n)`) torch takes them for pieces that keep the axis: they are taken one by one.
    """

    def __init__(self, whole: Tensor, axis: int) -> None:
        super().__init__(whole.movedim(axis, 0), tuple)
        self._whole = whole
        self._axis = axis

    def _made_plain(self) -> list[Any]:
        size: Any = self._whole.shape[self._axis]
        if size.node.expr.is_Symbol:
            return list(torch.ops.aten.unbind.int(self._whole, self._axis))
        return [self._whole.select(self._axis, place) for place in range(operator.index(size))]


class FreeChunks(FreeSequence):
    """Pieces of a known length of a free axis, of which the last may be shorter."""

    kind = tuple

    def __init__(self, whole: Tensor, length: int, axis: int) -> None:
        self._whole = whole
        self._length = length
        self._axis = axis

    def free_length(self) -> Size:
        """The number of pieces: one of an axis without elements."""
        size: Any = self._whole.shape[self._axis]
        return torch.sym_max((size + self._length - 1) // self._length, 1)

    def _made_plain(self) -> list[Any]:
        return list(torch.ops.aten.split.Tensor(self._whole, self._length, self._axis))

    def __getitem__(self, place: Any) -> Any:
        if self.is_plain or type(place) is not int:
            return self.as_kind()[place]
        counted = place if place >= 0 else self.free_length() + place
        begin = self._length * (counted if place >= 0 else torch.sym_max(counted, 0))
        end = None if place == -1 else begin + self._length
        return self._whole[(slice(None),) * self._axis + (slice(begin, end),)]


@contextlib.contextmanager
def parts_of_free_axes(made: list[object]) -> Iterator[None]:
    """Within, these functions give such lists for free axes, which are noted."""
    earlier = _MADE.set(made)
    try:
        yield
    finally:
        _MADE.reset(earlier)


def parts(function: Any, args: Sequence[Any], given: Mapping[str, Any]) -> FreeSequence | None:
    """What `unbind` or `split` gives of a free axis; None for any other call."""
    if function not in _UNBINDS and function not in _SPLITS:
        return None
    is_split = function in _SPLITS
    names = ("self", "length", "dim") if is_split else ("self", "dim")
    bound = {**dict(zip(names, args, strict=False)), **given}
    whole, dim = bound.get("self", bound.get("tensor", bound.get("input"))), bound.get("dim", 0)
    length = bound.get("length", bound.get("split_size", bound.get("split_size_or_sections")))
    if not isinstance(whole, Tensor) or type(dim) is not int or not -whole.dim() <= dim < whole.dim():
        return None
    if not isinstance(whole.shape[dim], torch.SymInt) or (is_split and (type(length) is not int or length < 1)):
        return None
    made = _MADE.get()  # asked last: dynamo, which reads the body of a loop, cannot read it
    if made is None:
        return None
    axis = dim % whole.dim()
    found = FreeChunks(whole, int(length), axis) if is_split and length else FreeSlices(whole, axis)
    made.append(found)
    return found
