"""Tensors of one number as indices: a choice of every element, or an index, whatever the data say.

Nothing arrives. Leaves: a context in which `t[mask] = value` with one truth value is captured as `torch.where`, and
`t[:, position] = value` with one integer as a write at an index that the program computes. torch makes the first a
write to no or one row of the tensor, and asks the second for its number, so that a capture would have to know the data;
where such an index is read it does so only beside other tensors: `t[position, places]`. Where a mask stands beside
other tensors (`t[mask, places]`), the places that it names are found by an operator of their own. Lists and ranges of
free length are tensors as an index, before torch asks for their length.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from batch_export.exporter.capture.free_sequences import as_index

_INDICES = (torch.int8, torch.int16, torch.int32, torch.int64)


@contextlib.contextmanager
def scalar_indices() -> Iterator[None]:
    """Within, one truth value or one integer in a tensor decides nothing as an index."""
    tensors: Any = Tensor
    write, read = tensors.__setitem__, tensors.__getitem__

    @functools.wraps(write)  # modes of torch get this function, and go by its name
    def written(self: Tensor, index: Any, value: Any) -> None:
        self, index = _without_sizes(self, as_index(index), writes=True)
        if _is_one(index, (torch.bool,)) and not (isinstance(value, Tensor) and value.dim() > self.dim()):
            new = torch.as_tensor(value, dtype=self.dtype, device=self.device)
            self.copy_(torch.where(index, new, self))
        elif (places := _places(self, index)) is not None:
            view, indices = _taken(self, index, places)
            new = torch.as_tensor(value, dtype=self.dtype, device=self.device)
            torch.ops.aten.index_put_.default(view, indices, new)
        else:
            write(self, index, value)

    @functools.wraps(read)
    def taken(self: Tensor, index: Any) -> Any:
        self, index = _without_sizes(self, as_index(index))
        if not isinstance(index, tuple):
            return read(self, index)
        named = _named(index)
        if named is index and not any(_is_one(one, _INDICES) for one in index):
            return read(self, index)
        if (places := _places(self, named)) is None or all(one.dim() == 0 for one in places.values()):
            return read(self, named)
        view, indices = _taken(self, named, places)
        return torch.ops.aten.index.Tensor(view, indices)

    tensors.__setitem__, tensors.__getitem__ = written, taken
    try:
        yield
    finally:
        del tensors.__setitem__, tensors.__getitem__


def _without_sizes(of: Tensor, index: Any, *, writes: bool = False) -> tuple[Tensor, Any]:
    """A tensor and an index with the entries that are sizes taken, and lists with sizes in them as tensors.

    torch takes the element at a number before it looks at tensors, too, but asks for the number where there are any,
    and of whatever is written to.
    """
    listed = index if isinstance(index, tuple) else (index,)
    is_asked = any(isinstance(one, (Tensor, list)) or (writes and isinstance(one, torch.SymInt)) for one in listed)
    if not is_asked or any(type(one) is bool for one in listed):
        return of, index
    listed = tuple(_as_numbers(one) if _has_sizes(one) else one for one in listed)
    view, axis, rest = of, 0, []
    for one in listed:
        if isinstance(one, torch.SymInt):
            view = view.select(axis, one)
            continue
        rest.append(one)
        axis += of.dim() - sum(map(_taken_axes, listed)) if one is Ellipsis else _taken_axes(one)
    return view, rest[0] if rest and not isinstance(index, tuple) else tuple(rest)


def _has_sizes(one: Any) -> bool:
    return type(one) is list and any(isinstance(size, torch.SymInt) for size in one) and all(map(_is_number, one))


def _is_number(one: Any) -> bool:
    return isinstance(one, (int, torch.SymInt)) and not isinstance(one, bool)


def _as_numbers(sizes: list[Any]) -> Tensor:
    return torch.stack([torch.scalar_tensor(size, dtype=torch.int64) for size in sizes])


def element_of(of: Any, index: Any) -> Any:
    """`of[index]` with tensors of one integer in it, whose number torch is not asked for where it is a tensor."""
    places = _places(of, index) if isinstance(of, Tensor) else None
    if places is None:
        return of[index]
    view, indices = _taken(of, index, places)
    return torch.ops.aten.index.Tensor(view, indices)


def _is_one(index: object, dtypes: tuple[torch.dtype, ...]) -> bool:
    return isinstance(index, Tensor) and index.dtype in dtypes and index.dim() == 0


def _named(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """An index in which the places that masks name stand for them, where there are other tensors beside a mask.

    How many these are is known only when the model runs, and torch knows that number of an operator of its own.
    """
    if sum(isinstance(one, Tensor) for one in index) < 2 or not any(map(_is_mask, index)):
        return index
    return tuple(part for one in index for part in (one.nonzero().unbind(1) if _is_mask(one) else (one,)))


def _is_mask(one: Any) -> bool:
    return isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8) and one.dim() > 0


def _places(of: Tensor, index: Any) -> dict[int, Tensor] | None:
    """The tensors of an index by the axis of what its other parts give; None where none is one integer."""
    listed = index if isinstance(index, tuple) else (index,)
    if not any(_is_one(one, _INDICES) for one in listed):
        return None
    places: dict[int, Tensor] = {}
    axis = 0
    for one in listed:
        if isinstance(one, Tensor):
            if one.dtype in (torch.bool, torch.uint8) and one.dim() == 0:
                return None
            places[axis] = one.to(torch.int64) if one.dtype in _INDICES else one
            axis += _taken_axes(one)
            continue
        if one is Ellipsis:
            axis += of.dim() - sum(_taken_axes(other) for other in listed)
            continue
        if isinstance(one, (int, torch.SymInt)) and not isinstance(one, bool):
            continue
        if one is not None and not isinstance(one, slice):
            return None
        axis += 1
    return places


def _taken_axes(one: Any) -> int:
    """How many axes of the tensor a part of an index takes: a mask has its own."""
    if isinstance(one, Tensor) and one.dtype in (torch.bool, torch.uint8):
        return one.dim()
    return int(one is not None and one is not Ellipsis)


def _taken(of: Tensor, index: Any, places: dict[int, Tensor]) -> tuple[Tensor, list[Tensor | None]]:
    """What the rest of an index gives, which shares the tensor's memory, and the tensors by its axes.

    torch takes the one element of an axis before it looks at other tensors, so that its axis does not count among
    those that stand apart: here it stands beside them.
    """
    listed = index if isinstance(index, tuple) else (index,)
    whole = [(slice(None),) * _taken_axes(one) if isinstance(one, Tensor) else (one,) for one in listed]
    view = of[tuple(part for parts in whole for part in parts)]
    single = [axis for axis, one in places.items() if one.dim() == 0]
    others = [axis for axis in places if axis not in single]
    order = [axis for axis in range(view.dim()) if axis not in single]
    at = order.index(others[0]) if others else 0
    order[at:at] = single
    indices = [places.get(axis) for axis in order]
    taken = [one for place, one in zip(order, indices, strict=True) if one is not None or not _is_within(place, places)]
    while taken and taken[-1] is None:
        taken.pop()
    return view.permute(order), taken


def _is_within(axis: int, places: dict[int, Tensor]) -> bool:
    """Whether an axis is a further one of a mask."""
    return any(start < axis < start + _taken_axes(one) for start, one in places.items())
