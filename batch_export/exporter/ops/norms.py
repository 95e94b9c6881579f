"""Norms of vectors along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


@lowering("aten::linalg_vector_norm")
def vector_norm(
    self: ir.Value, ord: float = 2.0, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1
) -> RecordedValue:
    """The p-norm along axes, or of all elements, of which kept axes are all 1."""
    data = self if dtype in (-1, None) else axes.shaped(op.Cast(self, to=dtype), self.shape)
    if axes.rank(self) == 0:
        return op.Squeeze(_norm(axes.at_least_1d(data), float(ord), [0], 1), [0])
    named = [dim] if isinstance(dim, int) else list(dim or range(axes.rank(self)))
    return _norm(data, float(ord), [axes.axis(self, one) for one in named], int(keepdim))


def _norm(data: ir.Value, p: float, along: list[int], keepdims: int) -> RecordedValue:
    if p != 0 and all(axes.fixed_size(data, one) == 1 for one in along):
        alone = op.Abs(data)  # no power of it is too small or too large for the dtype
        return alone if keepdims else op.Squeeze(alone, along)
    if math.isinf(p):
        reduce = op.ReduceMax if p > 0 else op.ReduceMin
        return reduce(op.Abs(data), along, keepdims=keepdims)
    if p == 0:
        there = op.Not(op.Equal(data, axes.like(0.0, data)))
        return op.ReduceSum(op.CastLike(there, data), along, keepdims=keepdims)
    if p in (1.0, 2.0):
        return (op.ReduceL1 if p == 1.0 else op.ReduceL2)(data, along, keepdims=keepdims)
    if data.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16):  # which have no third, and no room for a power
        wide = axes.shaped(op.Cast(data, to=ir.DataType.FLOAT), data.shape)
        return op.Cast(_norm(wide, p, along, keepdims), to=data.dtype)
    total = op.ReduceSum(op.Pow(op.Abs(data), axes.like(p, data)), along, keepdims=keepdims)
    return op.Pow(total, axes.like(1.0 / p, data))
