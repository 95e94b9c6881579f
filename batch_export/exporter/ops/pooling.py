"""Pooling that ONNX's operators do not cover: divisors of one's own, overhanging windows, adaptive windows.

Adaptive windows of output i over a size n in m pieces are [floor(i n / m), ceil((i + 1) n / m)), as torch documents.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


def _spread(value: Sequence[int] | int | None, count: int, fallback: Sequence[int]) -> list[int]:
    listed = [value] if isinstance(value, int) else list(value or fallback)
    return listed * count if len(listed) == 1 else listed


def _overhang(self: ir.Value, dim: int, kernel: int, stride: int, padding: int) -> int:
    """Zeros to add at the end of an axis so that the last window of ceil_mode fits."""
    length = axes.fixed_size(self, dim)
    if length is None:
        if stride + padding <= kernel:
            return stride - 1
        raise TranslationError(
            "ceil_mode over an axis of free size needs stride + padding <= kernel_size",
            operator="aten::avg_pool",
            next_step="keep that axis static, or pool without ceil_mode",
        )
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
    kernel = _spread(kernel_size, count, kernel_size)
    strides = _spread(stride, count, kernel)
    pads = _spread(padding, count, [0])
    unbatched = axes.rank(self) == count + 1
    data = axes.shaped(op.Unsqueeze(self, [0]), [1, *list(self.shape or ())]) if unbatched else self
    if not axes.is_float(self):
        data = op.Cast(data, to=ir.DataType.FLOAT)
    pool = {"kernel_shape": kernel, "strides": strides}
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
        ends = [one + more for one, more in zip(pads, extra, strict=True)]
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


def _windows(size: int, pieces: int) -> list[tuple[int, int]]:
    return [(index * size // pieces, -(-(index + 1) * size // pieces)) for index in range(pieces)]


def _fixed(self: ir.Value, dim: int) -> int:
    length = axes.fixed_size(self, dim)
    if length is None:
        raise TranslationError(
            "adaptive pooling of an axis of free size to more than one piece has no ONNX form",
            operator="aten::adaptive_pool",
            next_step="keep that axis static, or pool to size 1",
        )
    return length


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
        for column, (start, end) in enumerate(_windows(length, pieces)):
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


def _adaptive_average(self: ir.Value, output_size: Sequence[int | None]) -> ir.Value:
    count = len(output_size)
    rank = axes.rank(self)
    result: ir.Value = self
    whole = [rank - count + place for place, pieces in enumerate(output_size) if pieces == 1]
    if whole:
        result = op.ReduceMean(result, whole, keepdims=1)
    for place, pieces in enumerate(output_size):
        dim = rank - count + place
        if pieces is None or pieces == 1 or axes.fixed_size(self, dim) == pieces:
            continue
        table = _weights(self, dim, pieces, is_last=place == count - 1)
        if place == count - 1:
            result = op.MatMul(result, table)
        else:  # the axes behind are merged: onnxruntime fuses a Transpose of three axes into MatMul wrongly
            sizes = op.Shape(result)
            behind = op.ReduceProd(op.Slice(sizes, [dim + 1], [rank]), keepdims=1)
            rows = op.Concat(op.Slice(sizes, [0], [dim + 1]), behind, axis=0)
            if any(axes.fixed_size(self, position) in (None, 0) for position in range(dim)):
                # onnxruntime does not broadcast a table over an empty batch.
                table = op.Expand(table, op.Concat(op.Slice(sizes, [0], [dim]), op.Shape(table), axis=0))
            merged = op.MatMul(table, op.Reshape(result, rows, allowzero=1))
            back = op.Concat(op.Slice(sizes, [0], [dim]), [pieces], op.Slice(sizes, [dim + 1], [rank]), axis=0)
            result = op.Reshape(merged, back, allowzero=1)
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


def _merged_from(self: ir.Value, axis: int) -> RecordedValue:
    """The shape in which the axes from one on are merged; without -1, which is refused where another size is 0."""
    sizes = op.Shape(self)
    merged = op.ReduceProd(op.Slice(sizes, [axis], [axes.rank(self)]), keepdims=1)
    return op.Concat(op.Slice(sizes, [0], [axis]), merged, axis=0)


def _adaptive_maximum(self: ir.Value, output_size: Sequence[int]) -> tuple[RecordedValue, ...]:
    """Largest elements and their places in the flattened spatial axes; short windows repeat their last element."""
    count, rank = len(output_size), axes.rank(self)
    leading = rank - count
    if all(pieces == 1 for pieces in output_size):
        merged = op.Reshape(self, _merged_from(self, leading), allowzero=1)
        ones = [*[0] * leading, *[1] * count]
        largest = (op.ReduceMax(merged, [-1], keepdims=1), op.ArgMax(merged, axis=-1, keepdims=1))
        return tuple(op.Reshape(part, ones) for part in largest)
    result: ir.Value = self
    places = np.zeros((1,) * (2 * count), dtype=np.int64)
    kernels: list[int] = []
    sizes = [_fixed(self, leading + place) for place in range(count)]
    for place, pieces in enumerate(output_size):
        windows = _windows(sizes[place], pieces)
        kernel = max(end - start for start, end in windows)
        table = np.array([[min(start + step, end - 1) for step in range(kernel)] for start, end in windows])
        result = op.Gather(result, op.Constant(value=ir.tensor(table.reshape(-1))), axis=leading + place)
        shape = [1] * (2 * count)
        shape[place], shape[count + place] = pieces, kernel
        places = places + table.reshape(shape) * math.prod(sizes[place + 1 :])
        kernels.append(kernel)
    split = [part for pair in zip(output_size, kernels, strict=True) for part in pair]
    result = op.Reshape(result, [*[0] * leading, *split])
    order = [*range(leading), *(leading + 2 * i for i in range(count)), *(leading + 2 * i + 1 for i in range(count))]
    result = op.Reshape(op.Transpose(result, perm=order), [*[0] * leading, *output_size, math.prod(kernels)])
    choice = op.ArgMax(result, axis=-1, keepdims=1)
    where = op.Constant(value=ir.tensor(places.reshape(*[1] * leading, *output_size, -1)))
    wide = op.Expand(where, op.Concat(op.Shape(choice, end=-1), [1], axis=0))
    found = op.Squeeze(op.GatherElements(wide, choice, axis=-1), [-1])
    return op.ReduceMax(result, [leading + count], keepdims=0), found


@lowering("aten::adaptive_max_pool1d")
def adaptive_max_pool1d(self: ir.Value, output_size: Sequence[int]) -> tuple[RecordedValue, ...]:
    """Maxima over one axis divided into the wanted number of windows, and where they stand."""
    return _adaptive_maximum(self, _spread(output_size, 1, output_size))


@lowering("aten::adaptive_max_pool2d")
def adaptive_max_pool2d(self: ir.Value, output_size: Sequence[int]) -> tuple[RecordedValue, ...]:
    """Maxima over two axes divided into the wanted numbers of windows, and where they stand."""
    return _adaptive_maximum(self, _spread(output_size, 2, output_size))


@lowering("aten::adaptive_max_pool3d")
def adaptive_max_pool3d(self: ir.Value, output_size: Sequence[int]) -> tuple[RecordedValue, ...]:
    """Maxima over three axes divided into the wanted numbers of windows, and where they stand."""
    return _adaptive_maximum(self, _spread(output_size, 3, output_size))
