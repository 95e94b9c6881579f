"""Writing at tensors of one number: a choice of every element, or an index, whatever the data say.

Nothing arrives. Leaves: a context in which `t[mask] = value` with one truth value is captured as `torch.where`, and
`t[:, position] = value` with one integer as a write at an index that the program computes. torch makes the first a
write to no or one row of the tensor, and asks the second for its number, so that a capture would have to know the data;
where such an index is read it does not.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_INDICES = (torch.int8, torch.int16, torch.int32, torch.int64)


@contextlib.contextmanager
def scalar_indices() -> Iterator[None]:
    """Within, writing at one truth value or one integer in a tensor decides nothing."""
    tensors: Any = Tensor
    write = tensors.__setitem__

    @functools.wraps(write)  # modes of torch get this function, and go by its name
    def written(self: Tensor, index: Any, value: Any) -> None:
        if _is_one(index, (torch.bool,)) and not (isinstance(value, Tensor) and value.dim() > self.dim()):
            new = torch.as_tensor(value, dtype=self.dtype, device=self.device)
            self.copy_(torch.where(index, new, self))
        elif (places := _places(self, index)) is not None:
            view, indices = _taken(self, index, places)
            new = torch.as_tensor(value, dtype=self.dtype, device=self.device)
            torch.ops.aten.index_put_.default(view, indices, new)
        else:
            write(self, index, value)

    tensors.__setitem__ = written
    try:
        yield
    finally:
        del tensors.__setitem__


def _is_one(index: object, dtypes: tuple[torch.dtype, ...]) -> bool:
    return isinstance(index, Tensor) and index.dtype in dtypes and index.dim() == 0


def _places(of: Tensor, index: Any) -> dict[int, Tensor] | None:
    """Which axes of what the rest of an index gives have one integer as theirs; None for any other index."""
    listed = index if isinstance(index, tuple) else (index,)
    if not any(_is_one(one, _INDICES) for one in listed):
        return None
    places: dict[int, Tensor] = {}
    axis = 0
    for one in listed:
        if _is_one(one, _INDICES):
            places[axis] = one if one.dtype == torch.int64 else one.to(torch.int64)
        elif one is Ellipsis:
            axis += of.dim() - sum(other is not None and other is not Ellipsis for other in listed) - 1
        elif isinstance(one, (int, torch.SymInt)) and not isinstance(one, bool):
            continue
        elif one is not None and not isinstance(one, slice):
            return None
        axis += 1
    return places


def _taken(of: Tensor, index: Any, places: dict[int, Tensor]) -> tuple[Tensor, list[Tensor | None]]:
    """What the rest of an index gives, which shares the tensor's memory, and the integers by its axes."""
    listed = index if isinstance(index, tuple) else (index,)
    view = of[tuple(slice(None) if isinstance(one, Tensor) else one for one in listed)]
    return view, [places.get(axis) for axis in range(max(places) + 1)]
