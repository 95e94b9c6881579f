"""One tensor as it was: its memory and shape, its numbers, whether it has gradients.

Arrives: a tensor. Leaves: the same tensor. Nothing is known here of who holds it.
"""

from __future__ import annotations

import contextlib

import torch
from torch._subclasses.fake_tensor import FakeTensor


class KeptTensor:
    """A tensor, and what it takes to put it back.

    Args:
        tensor: any tensor; one without numbers of its own has none to put back.
        with_values: whether its numbers are copied.
    """

    def __init__(self, tensor: torch.Tensor, *, with_values: bool) -> None:
        self._tensor = tensor
        self._requires_grad = tensor.requires_grad
        self._has_function = tensor.grad_fn is not None
        self._grad = tensor.grad if tensor.is_leaf else None
        self._memory: torch.Tensor | None = None
        self._values: torch.Tensor | None = None
        if isinstance(tensor, FakeTensor) or tensor.is_meta:
            return
        with contextlib.suppress(RuntimeError, NotImplementedError):  # sparse ones, subclasses of others
            self._memory = tensor.data
            self._values = tensor.detach().clone() if with_values else None

    def _is_same(self) -> bool:
        """Whether nothing of it but its numbers can have changed."""
        tensor = self._tensor
        try:
            return (
                (tensor.grad_fn is None or self._has_function)
                and (self._memory is None or _same_memory(tensor, self._memory))
                and tensor.requires_grad == self._requires_grad
                and (not tensor.is_leaf or tensor.grad is self._grad)
            )
        except (RuntimeError, NotImplementedError):
            return False

    def put_back(self) -> None:
        """Makes the tensor what it was; torch writes to none of those that it refuses to here."""
        tensor = self._tensor
        if self._values is None and self._is_same():
            return
        with contextlib.suppress(RuntimeError, NotImplementedError):
            if tensor.grad_fn is not None and not self._has_function:
                tensor.detach_()
        with contextlib.suppress(RuntimeError, NotImplementedError):
            if self._memory is not None and not _same_memory(tensor, self._memory):
                tensor.data = self._memory
        with contextlib.suppress(RuntimeError, NotImplementedError):
            if self._memory is not None and self._values is not None and not same_bytes(self._memory, self._values):
                self._memory.copy_(self._values)
        with contextlib.suppress(RuntimeError):
            if tensor.requires_grad != self._requires_grad:
                tensor.requires_grad_(self._requires_grad)
        with contextlib.suppress(RuntimeError):
            if tensor.is_leaf and tensor.grad is not self._grad:
                tensor.grad = self._grad


def memory_of(tensor: torch.Tensor) -> int | None:
    """What tells the memory of one tensor from another's; None where it has none of its own."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return None


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether nothing has to be written, which memory that was mapped for reading only would not bear."""
    try:
        first, second = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    except (RuntimeError, NotImplementedError):
        return False
    return torch.equal(first, second)


def _same_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        memory_of(one) == memory_of(other)
        and one.dtype == other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.storage_offset() == other.storage_offset()
    )
