"""Adaptive maxima: the largest element of each piece into which axes are divided, and where it stands."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.max_pooling import spread
from batch_export.exporter.ops.pooling import windows


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
        found = op.Reshape(op.ArgMax(merged, axis=-1, keepdims=1), [*[0] * leading, *[1] * count])
        return op.ReduceMax(self, list(range(leading, rank)), keepdims=1), found
    if any(axes.fixed_size(self, leading + place) is None for place in range(count)):
        return _of_free_sizes(self, output_size)
    result: ir.Value = self
    places = np.zeros((1,) * (2 * count), dtype=np.int64)
    kernels: list[int] = []
    sizes = [axes.fixed_size(self, leading + place) or 0 for place in range(count)]
    for place, pieces in enumerate(output_size):
        pairs = windows(sizes[place], pieces)
        kernel = max(end - start for start, end in pairs)
        table = np.array([[min(start + step, end - 1) for step in range(kernel)] for start, end in pairs])
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


def _of_free_sizes(self: ir.Value, output_size: Sequence[int]) -> tuple[RecordedValue, ...]:
    """One axis after the other, from the last on, piece by piece: of equal elements the first of the piece is found."""
    count, rank = len(output_size), axes.rank(self)
    values, places = op.Identity(self), None
    behind: ir.Value = op.Constant(value=ir.tensor([1], dtype=ir.DataType.INT64))
    for axis in range(rank - 1, rank - count - 1, -1):
        pieces, length = output_size[axis - rank + count], axes.size(self, axis)
        found = [_piece(values, places, axis, length, behind, index, pieces) for index in range(pieces)]
        values, places = (op.Concat(*parts, axis=axis) for parts in zip(*found, strict=True))
        behind = op.Mul(behind, length)
    assert places is not None
    return values, places


def _piece(
    values: ir.Value,
    places: ir.Value | None,
    axis: int,
    length: ir.Value,
    behind: ir.Value,
    index: int,
    pieces: int,
) -> tuple[RecordedValue, RecordedValue]:
    start = op.Div(op.Mul(length, [index]), [pieces])
    end = op.Div(op.Add(op.Mul(length, [index + 1]), [pieces - 1]), [pieces])
    part = op.Slice(values, start, end, [axis])
    choice = op.ArgMax(part, axis=axis, keepdims=1)
    where = op.Mul(op.Add(choice, start), behind)
    if places is not None:
        where = op.Add(where, op.GatherElements(op.Slice(places, start, end, [axis]), choice, axis=axis))
    return op.ReduceMax(part, [axis], keepdims=1), where


@lowering("aten::adaptive_max_pool1d")
def adaptive_max_pool1d(self: ir.Value, output_size: Sequence[int]) -> tuple[RecordedValue, ...]:
    """Maxima over one axis divided into the wanted number of windows, and where they stand."""
    return _adaptive_maximum(self, spread(output_size, 1, output_size))


@lowering("aten::adaptive_max_pool2d")
def adaptive_max_pool2d(self: ir.Value, output_size: Sequence[int]) -> tuple[RecordedValue, ...]:
    """Maxima over two axes divided into the wanted numbers of windows, and where they stand."""
    return _adaptive_maximum(self, spread(output_size, 2, output_size))


@lowering("aten::adaptive_max_pool3d")
def adaptive_max_pool3d(self: ir.Value, output_size: Sequence[int]) -> tuple[RecordedValue, ...]:
    """Maxima over three axes divided into the wanted numbers of windows, and where they stand."""
    return _adaptive_maximum(self, spread(output_size, 3, output_size))
