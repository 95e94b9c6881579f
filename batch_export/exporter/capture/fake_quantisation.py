"""Shapes of torch's fake quantisation, for torch builds that capture cannot follow through it.

Nothing arrives. Leaves: a context in which the operators behind `torch.fake_quantize_...` work on tensors without data,
as torch.export needs. Kernels that torch brings itself are left alone, and ours are gone at the end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

_OPERATORS = (
    "fake_quantize_per_tensor_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "fake_quantize_per_channel_affine_cachemask",
)


def _values_and_mask(self: torch.Tensor, *_: object) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(self), torch.empty_like(self, dtype=torch.bool)


@contextlib.contextmanager
def fake_quantisation() -> Iterator[None]:
    """Within, fake quantisation can be captured."""
    with torch.library._scoped_library("aten", "IMPL") as library:
        for name in _OPERATORS:
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
                library.impl(name, _values_and_mask, "Meta")
        yield
