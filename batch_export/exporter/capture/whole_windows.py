"""Pools whose window is a free size: means and maxima of a whole axis (`avg_pool2d(x, x.shape[-2:])`), or of windows.

Arrives: a call of a pool that a forward makes. Leaves: the same result without a window of free size, for which torch
takes the size as a number; None where no window is free, or the pool pads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional

from batch_export.exporter.capture import free_windows

_AVERAGE = ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_LARGEST = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_NORM = ("input", "norm_type", "kernel_size", "stride", "ceil_mode")
_AS_IT_IS: Mapping[str, Any] = {"padding": 0, "dilation": 1, "return_indices": False, "divisor_override": None}
"""What a pool has to be called with for its windows to be nothing but parts of the axes."""


def _largest(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    return x.amax(axes, keepdim=True)


def _mean(x: torch.Tensor, axes: list[int]) -> torch.Tensor:
    return x.mean(axes, keepdim=True)


_POOLS: Mapping[Any, tuple[int, Sequence[str], Callable[[torch.Tensor, list[int]], torch.Tensor] | None]] = {
    functional.avg_pool1d: (1, _AVERAGE, _mean),
    functional.avg_pool2d: (2, _AVERAGE, _mean),
    functional.avg_pool3d: (3, _AVERAGE, _mean),
    functional.max_pool1d: (1, _LARGEST, _largest),
    torch.max_pool1d: (1, _LARGEST, _largest),
    functional.max_pool2d: (2, _LARGEST, _largest),
    torch.max_pool2d: (2, _LARGEST, _largest),
    functional.max_pool3d: (3, _LARGEST, _largest),
    torch.max_pool3d: (3, _LARGEST, _largest),
    functional.lp_pool1d: (1, _NORM, None),
    functional.lp_pool2d: (2, _NORM, None),
    functional.lp_pool3d: (3, _NORM, None),
}
"""A pool -> along how many axes, the names of its arguments, and what it is of a whole axis; None for a norm."""


def pooled(function: Any, args: Sequence[Any], given: Mapping[str, Any]) -> torch.Tensor | None:
    """The result of a call by means or maxima; None where it is no such call."""
    if function not in _POOLS:
        return None
    rank, names, reduce = _POOLS[function]
    bound = {**dict(zip(names, args, strict=False)), **given}
    x: torch.Tensor = bound["input"]
    windows = _each(bound["kernel_size"], rank)
    asked = [(one, plain) for name, plain in _AS_IT_IS.items() for one in _each(bound.get(name, plain), rank)]
    if any(type(one) is not type(plain) or one != plain for one, plain in asked):
        return None
    free = [axis for axis in range(-rank, 0) if isinstance(windows[axis], torch.SymInt)]
    if not free or x.dim() <= rank:
        return None
    axes = [axis for axis in range(-rank, 0) if statically_known_true(windows[axis] == x.shape[axis])]
    if not set(free) <= set(axes):
        steps = _each(bound.get("stride") or windows, rank)
        is_whole = not bound.get("ceil_mode", False) or all(type(step) is int and step == 1 for step in steps)
        return _slid(x, windows, steps, reduce) if reduce and is_whole and x.is_floating_point() else None
    if reduce is None:
        power = bound["norm_type"]
        return x.pow(power).sum(axes, keepdim=True).pow(1.0 / power) if len(axes) == rank else None
    found = reduce(x, axes)
    if len(axes) == rank:
        return found
    steps = _each(bound.get("stride") or windows, rank)
    left = {"kernel_size": windows, "stride": steps}
    plain = {name: [1 if at - rank in axes else one for at, one in enumerate(many)] for name, many in left.items()}
    made: torch.Tensor = function(found, **plain, ceil_mode=bool(bound.get("ceil_mode", False)))
    return made


def _slid(x: torch.Tensor, windows: list[Any], steps: list[Any], reduce: Any) -> torch.Tensor:
    """Means or maxima of the windows of one axis after the other, each of which has as many elements as the next."""
    for back, (window, step) in enumerate(zip(reversed(windows), reversed(steps), strict=True), 1):
        own = x.clone(memory_format=torch.contiguous_format)
        axis = own.dim() - back
        views = free_windows.unfolded(own, axis, window, step)
        x = reduce(own.unfold(axis, window, step) if views is None else views, [-1]).squeeze(-1)
    return x


def _each(given: Any, rank: int) -> list[Any]:
    """A parameter of a pool for each of its axes."""
    listed = list(given) if isinstance(given, (list, tuple)) else [given]
    return listed * rank if len(listed) == 1 else listed
