"""Histograms: how many elements lie in each of some intervals of equal lengths, and how often numbers occur."""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


@lowering("aten::histc")
def histc(self: ir.Value, bins: int = 100, min: float = 0.0, max: float = 0.0) -> RecordedValue:
    """Counts per interval as floating point numbers, `[bins]`; the last one has its upper end too.

    The interval is computed with torch's own rounding, so that a number at an edge falls on the same side. Equal limits
    stand for the smallest and the largest element, and one number for an interval of two around it.
    """
    data = axes.flat(self)
    low, high = (axes.like(float(limit), self) for limit in (min, max))
    if min == max:
        one = axes.like(1.0, self)
        low, high = (_extreme(reduce, data, low, end) for reduce, end in _ENDS)
        alone = op.CastLike(op.Equal(low, high), one)
        low, high = op.Sub(low, alone), op.Add(high, alone)
    inside = op.And(op.GreaterOrEqual(data, low), op.LessOrEqual(data, high))
    place = op.Div(op.Mul(op.Sub(data, low), axes.like(float(bins), self)), op.Sub(high, low))
    place = op.Min(op.Floor(place), axes.like(float(bins - 1), self))
    place = op.Where(inside, place, axes.like(-1.0, self))
    numbers = op.Constant(value=ir.tensor([[float(number)] for number in range(bins)], dtype=self.dtype))
    return op.ReduceSum(op.CastLike(op.Equal(place, numbers), self), [1], keepdims=0)


@lowering("aten::bincount")
def bincount(self: ir.Value, weights: ir.Value | None = None, minlength: int | ir.Value = 0) -> RecordedValue:
    """How often each number from 0 on occurs, `int64[length]`, or the sums of the weights, in their dtype or float64.

    The length is one more than the largest number, and `minlength` at least.
    """
    numbers = op.Cast(self, to=ir.DataType.INT64)
    least = op.Reshape(op.Sub(minlength, op.Constant(value_int=1)), [1])
    length = op.Add(op.ReduceMax(op.Concat(numbers, least, axis=0), keepdims=1), [1])
    if weights is None:
        zero, amounts = axes.like(0, numbers), op.Expand(axes.like(1, numbers), op.Shape(numbers))
    else:
        wide = weights.dtype != ir.DataType.FLOAT
        amounts = op.Cast(weights, to=ir.DataType.DOUBLE) if wide else op.Identity(weights)
        zero = axes.like(0.0, amounts)
    return op.ScatterElements(op.Expand(zero, length), numbers, amounts, axis=0, reduction="add")


_ENDS: tuple[tuple[Callable[..., RecordedValue], float], ...] = ((op.ReduceMin, math.inf), (op.ReduceMax, -math.inf))


def _extreme(reduce: Callable[..., RecordedValue], data: ir.Value, limit: ir.Value, end: float) -> RecordedValue:
    """The smallest or largest element, and the limit where there is none."""
    if axes.fixed_size(data, 0):
        return reduce(data, keepdims=0)
    found = reduce(op.Concat(data, op.Reshape(axes.like(end, data), [1]), axis=0), keepdims=0)
    return op.Where(op.Equal(op.Size(data), op.Constant(value_int=0)), limit, found)
