"""During capture, the branches of `torch.cond` may give tensors of several free axes.

Nothing arrives. Leaves: a context in which what both branches give with the same sizes and strides has these, and what
lies in order in memory has the strides of its sizes. Torch works the strides out from the sizes whether or not they
differ, and does not know those that it writes itself while it takes no sides on a size of 0 (`max(1, n)`).
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

_MODULE = importlib.import_module("torch._higher_order_ops.cond")  # a function of that name hides it
_OWN = "_merge_output"


def _layout(tensor: torch.Tensor) -> tuple[object, ...]:
    """What two fake tensors have in common that look alike, sizes and strides by their expressions.

    A number of the data that both have is of neither branch: each makes symbols of its own.
    """
    sizes = map(_expression, (*tensor.shape, *tensor.stride()))
    return (tensor.dtype, tensor.device, tensor.layout, tensor.is_conj(), *sizes)


def _in_order(tensor: FakeTensor, mode: FakeTensorMode) -> torch.Tensor:
    """A tensor in order in memory whose strides are products of its sizes and not of `max(1, n)` as well."""
    strides: list[Any] = [1]
    for size in reversed(tensor.shape[1:]):
        strides.insert(0, strides[0] * size)
    if tensor.dim() < 2 or list(map(_expression, strides)) == list(map(_expression, tensor.stride())):
        return tensor
    with mode:
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)


def _expression(size: object) -> object:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _is_plain(tensor: FakeTensor) -> bool:
    strided = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_conj()
    return strided and tensor.storage_offset() == 0


@contextlib.contextmanager
def alike_branches() -> Iterator[None]:
    """Within, results of branches that look alike are taken as they are.

    NOTE: this replaces a function of torch's while a model is captured; it may go once torch's takes such strides. A
    torch without that function refuses these models as before.
    """
    own: Callable[..., Any] | None = getattr(_MODULE, _OWN, None)
    if own is None:
        yield
        return

    def merged(a: Any, b: Any, mode: FakeTensorMode) -> Any:
        both = isinstance(a, FakeTensor) and isinstance(b, FakeTensor)
        if both and is_contiguous_or_false(a) and is_contiguous_or_false(b):
            a, b = _in_order(a, mode), _in_order(b, mode)
        if not both or not (_is_plain(a) and _is_plain(b)) or _layout(a) != _layout(b):
            return own(a, b, mode)
        with mode:
            return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype, device=a.device)

    setattr(_MODULE, _OWN, merged)
    try:
        yield
    finally:
        setattr(_MODULE, _OWN, own)
