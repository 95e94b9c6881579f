"""Pooling that ONNX's operators do not cover: divisors of one's own, overhanging windows, adaptive windows.

Adaptive windows of output i over a size n in m pieces are [floor(i n / m), ceil((i + 1) n / m)), as torch documents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes, wide_windows
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.max_pooling import spread
from batch_export.exporter.ops.reductions import mean_over

_WIDE = 1024
"""Windows of more elements are not filled up where they reach beyond axes of free size: products take what is there."""


def _overhang(self: ir.Value, dim: int, kernel: int, stride: int, padding: int) -> Size:
    """Zeros to add at the end of an axis so that the last window of ceil_mode fits."""
    length = axes.fixed_size(self, dim)
    if length is None:
        if stride + padding <= kernel:
            return stride - 1
        missing = op.Mod(op.Sub(kernel - 2 * padding, axes.size(self, dim)), stride)
        return op.Mul(missing, op.Cast(op.Less(missing, kernel - padding), to=ir.DataType.INT64))
    windows = math.ceil((length + 2 * padding - kernel) / stride) + 1
    if (windows - 1) * stride >= length + padding:
        windows -= 1
    return max(0, (windows - 1) * stride + kernel - length - 2 * padding)


def _average_pool(
    count: int,
    self: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None,
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> RecordedValue:
    kernel = spread(kernel_size, count, kernel_size)
    strides = spread(stride, count, kernel)
    pads = spread(padding, count, [0])
    unbatched = axes.rank(self) == count + 1
    if ceil_mode:  # what reaches beyond the padding counts nowhere, and a window for all of any size is not filled up
        lengths = [axes.fixed_size(self, axes.rank(self) - count + place) for place in range(count)]
        reach = [None if one is None else one + 2 * pad for one, pad in zip(lengths, pads, strict=True)]
        kernel = [size if one is None else min(size, max(one, 1)) for size, one in zip(kernel, reach, strict=True)]
    data = axes.shaped(op.Unsqueeze(self, [0]), [1, *list(self.shape or ())]) if unbatched else self
    if not axes.is_float(self):
        data = op.Cast(data, to=ir.DataType.DOUBLE)  # sums of integers are exact there up to 2^53
    pool = {"kernel_shape": kernel, "strides": strides}
    is_free = any(axes.fixed_size(data, 2 + place) is None for place in range(count))
    if ceil_mode and is_free and math.prod(kernel) > _WIDE and axes.is_float(self):
        result = wide_windows.means(data, kernel, strides, pads, count_include_pad, divisor_override)
        return op.Squeeze(result, [0]) if unbatched else result
    along = _only_axis(data, kernel, strides, pads)
    if along is not None and not ceil_mode and axes.is_float(self):
        result = _sliding_mean(data, along, kernel[along - 2], divisor_override)
        return op.Squeeze(result, [0]) if unbatched else result
    if not ceil_mode and divisor_override is None:
        result = op.AveragePool(data, **pool, pads=pads * 2, count_include_pad=int(count_include_pad))
    else:
        first = axes.rank(self) - count
        extra = [
            _overhang(self, first + place, kernel[place], strides[place], pads[place]) if ceil_mode else 0
            for place in range(count)
        ]
        spatial = list(range(2, 2 + count))
        ends: list[Size] = [
            one + more if isinstance(more, int) else op.Add(more, one) for one, more in zip(pads, extra, strict=True)
        ]
        padded = axes.padded(data, pads, ends, spatial, op.CastLike(0.0, data))
        total = op.Mul(op.AveragePool(padded, **pool), op.CastLike(float(math.prod(kernel)), data))
        if not axes.is_float(self):
            total = op.Round(total)
        divisor = op.CastLike(float(divisor_override or 1), data)
        if divisor_override is None:
            shape = op.Concat([1, 1], op.Shape(data, start=2), axis=0)
            ones = axes.shaped(op.Expand(op.CastLike(1.0, data), shape), [None] * (2 + count))
            inner = 1.0 if count_include_pad else 0.0
            ones = axes.padded(ones, pads, pads, spatial, op.CastLike(inner, data))
            axes.shaped(ones, [None] * (2 + count))
            ones = axes.padded(ones, [0] * count, extra, spatial, op.CastLike(0.0, data))
            divisor = op.Mul(op.AveragePool(ones, **pool), op.CastLike(float(math.prod(kernel)), data))
        result = op.Div(total, divisor)
    if not axes.is_float(self):
        result = op.Cast(result, to=ir.DataType.INT64)
    return op.Squeeze(result, [0]) if unbatched else result


def _only_axis(data: ir.Value, kernel: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> int | None:
    """The one axis that windows go along, where an axis behind the batch is free and may turn out to be empty.

    torch pools so in `local_response_norm`; runtimes refuse to pool what has no elements.
    """
    along = [2 + place for place, size in enumerate(kernel) if size != 1]
    if len(along) != 1 or set(strides) != {1} or any(pads):
        return None
    rest = range(1, 2 + len(kernel))
    return along[0] if any(axes.fixed_size(data, axis) in (None, 0) for axis in rest) else None


def _sliding_mean(data: ir.Value, axis: int, width: int, divisor: int | None) -> RecordedValue:
    """The means of windows along one axis as the sum of the slices that begin at each place of a window."""
    total: RecordedValue | None = None
    for place in range(width):
        slice_of = op.Slice(data, [place], [2**62 if place == width - 1 else place + 1 - width], [axis])
        total = slice_of if total is None else op.Add(total, slice_of)
    assert total is not None
    return op.Div(total, op.CastLike(float(divisor or width), data))


@lowering("aten::avg_pool1d")
def avg_pool1d(
    self: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> RecordedValue:
    """Means of windows over one axis."""
    return _average_pool(1, self, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@lowering("aten::avg_pool2d")
def avg_pool2d(
    self: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> RecordedValue:
    """Means of windows over two axes, or sums over `divisor_override`."""
    return _average_pool(2, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@lowering("aten::avg_pool3d")
def avg_pool3d(
    self: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> RecordedValue:
    """Means of windows over three axes, or sums over `divisor_override`."""
    return _average_pool(3, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def windows(size: int, pieces: int) -> list[tuple[int, int]]:
    """Start and end of each of the pieces into which adaptive pooling divides an axis; they may overlap."""
    return [(index * size // pieces, -(-(index + 1) * size // pieces)) for index in range(pieces)]


def _weights(self: ir.Value, dim: int, pieces: int | ir.Value, *, is_last: bool) -> RecordedValue:
    """What each element adds to the mean of each window: `float[length, pieces]` for the last axis, else turned."""
    length = axes.fixed_size(self, dim)
    numbers: RecordedValue
    if isinstance(pieces, ir.Value):
        numbers = op.Range(0, pieces, 1)
        pieces = op.Max(pieces, 1)  # 1 in place of 0, where there are no numbers to divide
    elif length is None:
        numbers = op.Constant(value=ir.tensor(np.arange(pieces, dtype=np.int64)))
    else:
        weights = np.zeros((length, pieces))
        for column, (start, end) in enumerate(windows(length, pieces)):
            weights[start:end, column] = 1.0 / (end - start)
        return op.CastLike(op.Constant(value=ir.tensor(weights if is_last else weights.T.copy())), self)
    free = axes.scalar(axes.size(self, dim))
    starts = op.Div(op.Mul(numbers, free), pieces)
    ends = op.Div(op.Add(op.Mul(op.Add(numbers, 1), free), op.Sub(pieces, 1)), pieces)
    places = op.Range(0, free, 1)
    place_axis, piece_axis = (1, 0) if is_last else (0, 1)
    places = op.Unsqueeze(places, [place_axis])
    starts, ends = op.Unsqueeze(starts, [piece_axis]), op.Unsqueeze(ends, [piece_axis])
    inside = op.And(op.GreaterOrEqual(places, starts), op.Less(places, ends))
    return op.Div(op.CastLike(inside, self), op.CastLike(op.Sub(ends, starts), self))


def _even(length: int | None, pieces: int | None) -> int | None:
    """How many elements of an axis each piece has, where all have as many and no two share one."""
    if pieces is None:
        return 1
    return length // pieces if length and pieces and not length % pieces else None


def _adaptive_average(self: ir.Value, output_size: Sequence[int | None]) -> ir.Value:
    count = len(output_size)
    rank = axes.rank(self)
    kernel = [_even(axes.fixed_size(self, rank - count + place), pieces) for place, pieces in enumerate(output_size)]
    if set(kernel) == {1}:
        return axes.from_zero(self)
    inner = range(1 if rank == count + 2 else 0, rank)  # runtimes pool an empty batch, but no empty images
    if all(kernel) and set(output_size) != {1} and all(axes.never_empty(self, axis) for axis in inner):
        return _average_pool(count, self, [one or 1 for one in kernel], None, [0], False, True, None)
    result: ir.Value = self
    whole = [rank - count + place for place, pieces in enumerate(output_size) if pieces == 1]
    if whole:
        result = mean_over(result, whole, keepdims=True)
    for place, pieces in enumerate(output_size):
        dim = rank - count + place
        if pieces is None or pieces == 1 or axes.fixed_size(self, dim) == pieces:
            continue
        table = _weights(self, dim, pieces, is_last=place == count - 1)
        result = wide_windows.product_along(result, self, dim, table, pieces)
        if not axes.never_empty(self, dim):  # 0 / 0 where there is nothing, and 0 elsewhere
            length = op.CastLike(axes.scalar(axes.size(self, dim)), self)
            result = op.Add(result, op.Div(axes.like(0.0, self), length))
    return result


@lowering("aten::adaptive_avg_pool3d", "aten::_adaptive_avg_pool3d")
def adaptive_avg_pool3d(self: ir.Value, output_size: Sequence[int]) -> ir.Value:
    """Means over three axes divided into the wanted numbers of windows."""
    return _adaptive_average(self, output_size)


@lowering("aten::adaptive_avg_pool2d", "aten::_adaptive_avg_pool2d")
def adaptive_avg_pool2d(self: ir.Value, output_size: Sequence[int]) -> ir.Value:
    """Means over two axes divided into the wanted numbers of windows."""
    return _adaptive_average(self, output_size)


@lowering("aten::adaptive_avg_pool1d", "aten::_adaptive_avg_pool1d")
def adaptive_avg_pool1d(self: ir.Value, output_size: Sequence[int]) -> ir.Value:
    """Means over one axis divided into the wanted number of windows."""
    return _adaptive_average(self, output_size)
