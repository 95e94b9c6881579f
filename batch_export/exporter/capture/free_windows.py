"""Windows of free length or step (`x.unfold(0, min(x.shape[0], 4), 1)`), which torch takes as the example's numbers.

Arrives: a tensor, an axis, and the windows along it. Leaves: the same view of its memory by `as_strided`, whose sizes
may be free; None where the tensor does not fill its memory from the start, which alone a file can follow.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch.fx.experimental.symbolic_shapes import statically_known_true


def unfolded(x: torch.Tensor, axis: int, length: Any, step: Any) -> torch.Tensor | None:
    """The windows along an axis, their elements last; what is written to them is written to the tensor.

    None where neither length nor step is free.
    """
    if not any(isinstance(one, torch.SymInt) for one in (length, step)) or not x.dim():
        return None
    order = sorted(range(x.dim()), key=lambda place: -_at_example(x.stride(place)))
    memory = x.permute(order)
    if not is_contiguous_or_false(memory) or not statically_known_true(memory.storage_offset() == 0):
        return None
    along = order.index(axis % x.dim())
    sizes, strides = list(memory.shape), list(memory.stride())
    within = strides[along]
    sizes[along], strides[along] = (sizes[along] - length) // step + 1, within * step
    windows = memory.as_strided([*sizes, length], [*strides, within])
    return windows.permute([*map(order.index, range(x.dim())), x.dim()])


def _at_example(stride: Any) -> int:
    return int(stride.node.hint) if isinstance(stride, torch.SymInt) else int(stride)
