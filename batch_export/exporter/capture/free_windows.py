"""Windows of free length, step or number (`x.unfold(0, min(x.shape[0], 4), 1)`), which torch takes as the example's.

Arrives: a tensor, an axis, and the windows along it. Leaves: the same view of its memory by `as_strided`, whose sizes
may be free; None where the tensor does not fill its memory from the start, which alone a file can follow. Of means over
as many windows as a size says: those of an image of one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._prims_common import is_contiguous_or_false
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional


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


def adaptive_average(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """A mean over as many windows as a size says, as of an image of one row: torch takes their number as it is."""
    size = _listed(bound["output_size"])[-1]
    if not isinstance(size, torch.SymInt):
        return None
    row: torch.Tensor = torch.ops.aten.adaptive_avg_pool2d(bound["input"].unsqueeze(-2), [1, size])
    return row.squeeze(-2)


def areas(bound: Mapping[str, Any]) -> torch.Tensor | None:
    """Resampling of a sound by areas, which are such windows; None for any other."""
    x: torch.Tensor = bound["input"]
    if bound.get("mode") != "area" or x.dim() != 3:
        return None
    size, scale = bound.get("size"), bound.get("scale_factor")
    settings = {name: bound[name] for name in ("recompute_scale_factor",) if name in bound}
    row = functional.interpolate(
        x.unsqueeze(-2),
        None if size is None else [1, *_listed(size)],
        None if scale is None else [1.0, *_listed(scale)],
        mode="area",
        **settings,
    )
    return row.squeeze(-2)


def _listed(one: Any) -> list[Any]:
    return list(one) if isinstance(one, (list, tuple)) else [one]
