"""`t[mask] = value` with a mask of one truth value: a choice of every element, whatever the data say.

Nothing arrives. Leaves: a context in which such a write is captured as `torch.where`. torch makes it a write to no or
one row of the tensor, so that a capture has to decide which of the two it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def masks_of_one() -> Iterator[None]:
    """Within, writing where a scalar is true decides nothing."""
    own: Any = torch.Tensor.__setitem__

    def written(self: torch.Tensor, index: Any, value: Any) -> None:
        if not _is_one_mask(index) or (isinstance(value, torch.Tensor) and value.dim() > self.dim()):
            own(self, index, value)
            return
        new = torch.as_tensor(value, dtype=self.dtype, device=self.device)
        self.copy_(torch.where(index, new, self))

    torch.Tensor.__setitem__ = written
    try:
        yield
    finally:
        delattr(torch.Tensor, "__setitem__")


def _is_one_mask(index: object) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype == torch.bool and index.dim() == 0
