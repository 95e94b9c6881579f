"""Fractional max pooling: windows at places that a random number per plane moves."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


def _starts(sample: ir.Value, size: ir.Value, count: int, kernel: int) -> RecordedValue:
    """Where the windows of each plane begin along one axis: `int64[planes, count]`.

    Args:
        sample: `float[planes, 1]`.
        size: the axis' length, `int64[1]`.
        count: how many windows there are.
        kernel: how long a window is.
    """
    last = op.Sub(size, kernel)
    if count == 1:
        return op.Add(op.Cast(op.Mul(sample, axes.like(0.0, sample)), to=ir.DataType.INT64), last)
    step = op.Div(op.CastLike(last, sample), axes.like(float(count - 1), sample))
    numbers = op.Constant(value=ir.tensor([[float(place) for place in range(count)]], dtype=sample.dtype))
    here = op.Cast(op.Mul(op.Add(numbers, sample), step), to=ir.DataType.INT64)
    begun = op.Sub(here, op.Cast(op.Mul(sample, step), to=ir.DataType.INT64))
    is_last = op.Constant(value=ir.tensor([[place == count - 1 for place in range(count)]], dtype=ir.DataType.BOOL))
    return op.Where(is_last, last, begun)


def _pooled(
    self: ir.Value, kernels: Sequence[int], counts: Sequence[int], samples: ir.Value
) -> tuple[RecordedValue, RecordedValue]:
    """The largest element of each window, and its place within the plane."""
    spatial = len(kernels)
    lead, sizes = op.Shape(self, end=-spatial), [axes.size(self, dim - spatial) for dim in range(spatial)]
    window = 1
    for kernel in kernels:
        window *= kernel
    flat = op.Reshape(self, op.Concat(op.ReduceProd(lead, keepdims=1), [-1], axis=0))
    moves = op.Reshape(samples, [-1, spatial])
    places: ir.Value | None = None
    for dim, (kernel, count) in enumerate(zip(kernels, counts, strict=True)):
        turn = spatial - 1 - dim if spatial == 2 else dim  # torch takes the last number for the height of images
        starts = _starts(op.Gather(moves, [turn], axis=1), sizes[dim], count, kernel)
        offsets = op.Constant(value=ir.tensor([[[step for step in range(kernel)]]], dtype=ir.DataType.INT64))
        along = op.Add(op.Unsqueeze(starts, [2]), offsets)
        shape = [0, *[1] * (2 * spatial)]
        shape[1 + dim], shape[1 + spatial + dim] = count, kernel
        along = op.Reshape(along, shape)
        places = along if places is None else op.Add(op.Mul(places, sizes[dim]), along)
    assert places is not None
    merged = op.Reshape(places, [0, -1, window])
    found = op.Reshape(op.GatherElements(flat, op.Reshape(merged, [0, -1]), axis=1), op.Shape(merged))
    best = op.ArgMax(found, axis=2, keepdims=1)
    sizes_of_result = op.Concat(lead, [*counts], axis=0)
    largest = op.Reshape(op.ReduceMax(found, [2], keepdims=0), sizes_of_result)
    return largest, op.Reshape(op.GatherElements(merged, best, axis=2), sizes_of_result)


@lowering("aten::fractional_max_pool2d")
def fractional_max_pool2d(
    self: ir.Value, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: ir.Value
) -> tuple[RecordedValue, RecordedValue]:
    """Of images."""
    return _pooled(self, kernel_size, output_size, random_samples)


@lowering("aten::fractional_max_pool3d")
def fractional_max_pool3d(
    self: ir.Value, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: ir.Value
) -> tuple[RecordedValue, RecordedValue]:
    """Of volumes."""
    return _pooled(self, kernel_size, output_size, random_samples)
