"""Distances between rows."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


def _norm(difference: ir.Value, p: float, last: int) -> RecordedValue:
    """The p-norm over the last axis."""
    size = op.Abs(difference)
    if p == 0:
        return op.ReduceSum(op.Min(op.Ceil(size), axes.like(1.0, size)), [last], keepdims=0)  # NaN stays NaN
    if p == 1:
        return op.ReduceSum(size, [last], keepdims=0)
    if p == 2:
        return op.Sqrt(op.ReduceSum(op.Mul(size, size), [last], keepdims=0))
    if math.isinf(p):
        greatest = op.ReduceMax(size, [last], keepdims=0)
        if axes.never_empty(size, last):
            return greatest
        zero = op.CastLike(0.0, size)
        return op.Where(op.Less(greatest, zero), zero, greatest)  # over no columns torch has 0
    total = op.ReduceSum(op.Pow(size, op.CastLike(p, size)), [last], keepdims=0)
    return op.Pow(total, op.CastLike(1.0 / p, size))


@lowering("aten::cdist", "aten::_cdist_forward")
def cdist(x1: ir.Value, x2: ir.Value, p: float = 2.0, compute_mode: int | None = None) -> RecordedValue:
    """Distances between the rows of two batches: `float[..., n, d]`, `float[..., m, d]` to `float[..., n, m]`."""
    left = op.Unsqueeze(x1, [axes.rank(x1) - 1])
    right = op.Unsqueeze(x2, [axes.rank(x2) - 2])
    difference = op.Sub(left, right)
    if math.isinf(p):  # the greatest of those that are numbers: eager compares, and NaN is not greater
        difference = op.Where(op.IsNaN(difference), axes.like(0.0, difference), difference)
    return _norm(difference, p, max(axes.rank(x1), axes.rank(x2)))


@lowering("aten::pdist", "aten::_pdist_forward")
def pdist(self: ir.Value, p: float = 2.0) -> RecordedValue:
    """Distances between all pairs of rows of `float[n, d]`, each pair once."""
    count = axes.fixed_size(self, 0)
    if count is None:
        raise TranslationError(
            "pdist needs a fixed number of rows", operator="aten::pdist", next_step="use cdist for a free number"
        )
    first, second = np.triu_indices(count, k=1)
    pairs = [op.Gather(self, op.Constant(value=ir.tensor(chosen.astype(np.int64)))) for chosen in (first, second)]
    return _norm(op.Sub(*pairs), p, 1)
