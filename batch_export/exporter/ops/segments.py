"""Reductions over segments of an axis, which lengths or offsets tell apart."""

from __future__ import annotations

import math

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@lowering("aten::segment_reduce")
def segment_reduce(
    data: ir.Value,
    reduce: str,
    *,
    lengths: ir.Value | None = None,
    indices: ir.Value | None = None,
    offsets: ir.Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> RecordedValue:
    """Sums, means, products or extremes: `[..., n, rest]` to `[..., segments, rest]`.

    Each segment starts from `initial`; an empty one gives that, and the mean of none without it is NaN.
    """
    if reduce not in _START or (lengths is None and offsets is None):
        raise TranslationError(f"segment_reduce by {reduce!r} is not translated", next_step="use lengths or offsets")
    dim = axes.axis(data, axis)
    if offsets is not None:
        bounds = op.Cast(offsets, to=ir.DataType.INT64)
        first, last = op.Slice(bounds, [0], [-1], [dim]), op.Slice(bounds, [1], [2**62], [dim])
    else:
        assert lengths is not None
        counts = op.Cast(lengths, to=ir.DataType.INT64)
        last = op.CumSum(counts, op.Constant(value_int=dim))
        first = op.Sub(last, counts)
    places = op.Range(0, axes.scalar(axes.size(data, dim)), 1)
    inside = op.And(op.GreaterOrEqual(places, op.Unsqueeze(first, [-1])), op.Less(places, op.Unsqueeze(last, [-1])))
    behind = axes.rank(data) - dim - 1
    if behind:
        inside = op.Unsqueeze(inside, list(range(dim + 2, dim + 2 + behind)))
    start = _START[reduce] if initial is None else float(initial)
    neutral, begun = axes.like(_START[reduce], data), axes.like(start, data)
    spread = op.Where(inside, op.Unsqueeze(data, [dim]), neutral)
    over = [dim + 1]
    if reduce in ("sum", "mean"):
        found = op.Add(op.ReduceSum(spread, over, keepdims=0), begun)
    elif reduce == "prod":
        found = op.Mul(op.ReduceProd(spread, over, keepdims=0), begun)
    elif reduce == "max":
        found = op.Max(op.ReduceMax(spread, over, keepdims=0), begun)
    else:
        found = op.Min(op.ReduceMin(spread, over, keepdims=0), begun)
    if reduce != "mean":
        return found
    size = op.CastLike(op.Sub(last, first), data)
    size = op.Unsqueeze(size, list(range(dim + 1, dim + 1 + behind))) if behind else size
    empty = axes.like(math.nan if initial is None else start, data)
    return op.Where(op.Equal(size, axes.like(0.0, data)), empty, op.Div(found, size))
