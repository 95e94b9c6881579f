"""The opsets that the exporter writes, and the one that torchlib's functions are written in."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from batch_export.legalise import steps

LOWEST_OPSET = steps.LOWEST
HIGHEST_OPSET = steps.HIGHEST
TORCHLIB_OPSET = 18
"""The opset that torchlib's functions are written in."""
DEFAULT_OPSET = 20
"""The opset of a file for which none was asked."""
_FIRST = {torch.float4_e2m1fn_x2: 23, torch.float8_e8m0fnu: 24}
"""The first opset whose operators take a dtype, where that is later than the default."""


def default_for(values: Iterable[object]) -> int:
    """The opset for a program for which none was asked: the default one, or the first that has its dtypes.

    Args:
        values: what torch computed for the program's nodes, tensors or others.
    """
    dtypes = (value.dtype for value in values if isinstance(value, torch.Tensor))
    return max((_FIRST.get(dtype, DEFAULT_OPSET) for dtype in dtypes), default=DEFAULT_OPSET)
