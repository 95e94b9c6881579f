"""Maxima of windows with `ceil_mode`, where torch and ONNX count the windows of an axis apart.

torch leaves out a last window that begins behind the elements and the padding before them; ONNX counts it up to opset
21. Such a pooling is written without `ceil_mode`, with the elements added that its other axes need at their ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


def spread(value: Sequence[int] | int | None, count: int, fallback: Sequence[int]) -> list[int]:
    """One number for each of so many axes, where torch takes one for all of them."""
    listed = [value] if isinstance(value, int) else list(value or fallback)
    return listed * count if len(listed) == 1 else listed


def _overhangs(self: ir.Value, count: int, window: Sequence[list[int]]) -> list[int] | None:
    """Elements to add at the end of each axis so that no window is cut; None where ONNX counts as torch does."""
    kernels, steps, pads, spreads = window
    missing, is_apart = [], False
    for place, pad in enumerate(pads):
        length = axes.fixed_size(self, axes.rank(self) - count + place)
        if length is None:
            return None
        reach = spreads[place] * (kernels[place] - 1) + 1
        windows = math.ceil((length + 2 * pad - reach) / steps[place]) + 1
        if (windows - 1) * steps[place] >= length + pad:
            windows, is_apart = windows - 1, True
        missing.append(max(0, (windows - 1) * steps[place] + reach - length - 2 * pad))
    return missing if is_apart else None


_Pooled = RecordedValue | Sequence[RecordedValue]


def _pooled(
    pool: Callable[..., _Pooled], self: ir.Value, count: int, window: Sequence[list[int]], ceil_mode: bool
) -> _Pooled:
    missing = _overhangs(self, count, window) if ceil_mode else None
    if missing is None:
        return pool(self, *window, ceil_mode)
    listed = list(range(axes.rank(self) - count, axes.rank(self)))
    lowest = float("-inf") if axes.is_float(self) else int(np.iinfo(self.dtype.numpy()).min)  # type: ignore[union-attr]
    data = self
    if any(missing):
        data = axes.padded(self, [0] * count, missing, listed, axes.like(lowest, self))
        sizes = list(self.shape or ())
        for axis, more in zip(listed, missing, strict=True):
            sizes[axis] = int(sizes[axis]) + more  # type: ignore[arg-type]
        axes.shaped(data, sizes)
    found = pool(data, *window, False)
    if not isinstance(found, (tuple, list)) or not any(missing):
        return found
    values, places = found
    return values, _places_without(places, [axes.fixed_size(self, axis) or 0 for axis in listed], missing)


def _places_without(places: RecordedValue, sizes: list[int], missing: list[int]) -> RecordedValue:
    """Places in the flattened axes, counted as if nothing had been added at their ends."""
    result = None
    for axis, size in enumerate(sizes):
        behind = math.prod(one + more for one, more in zip(sizes[axis + 1 :], missing[axis + 1 :], strict=True))
        along = op.Mod(op.Div(places, behind), size + missing[axis])
        part = op.Mul(along, math.prod(sizes[axis + 1 :]))
        result = part if result is None else op.Add(result, part)
    assert result is not None
    return result


def _lowered(count: int, name: str) -> Callable[..., _Pooled]:
    def pool(
        self: ir.Value,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> _Pooled:
        from onnxscript.function_libs.torch_lib.ops import nn  # lazy: a second and more to import

        plain: Callable[..., _Pooled] = getattr(nn, f"aten_{name}")
        kernel = spread(kernel_size, count, ())
        window = (kernel, spread(stride, count, kernel), spread(padding, count, [0]), spread(dilation, count, [1]))
        return _pooled(plain, self, count, window, ceil_mode)

    pool.__doc__ = f"`aten::{name}`."
    return lowering(f"aten::{name}")(pool)


max_pool1d, max_pool2d, max_pool3d = (_lowered(count, f"max_pool{count}d") for count in (1, 2, 3))
max_pool1d_places, max_pool2d_places, max_pool3d_places = (
    _lowered(count, f"max_pool{count}d_with_indices") for count in (1, 2, 3)
)
