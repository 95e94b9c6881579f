"""Areas under curves by the rule of trapezoids, also where there is no point at all."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


@lowering("aten::trapezoid.dx", "aten::trapz.dx")
def trapezoid(y: ir.Value, dx: float = 1.0, dim: int = -1) -> RecordedValue:
    """The sum along an axis without half of its ends, times their distance; of nothing it is 0."""
    position = axes.axis(y, dim)
    first = op.Slice(y, [0], [1], [position])
    last = op.Slice(y, [-1], [2**62], [position])
    ends = op.Add(*(op.ReduceSum(end, [position], keepdims=0) for end in (first, last)))
    inner = op.Sub(op.ReduceSum(y, [position], keepdims=0), op.Mul(ends, axes.like(0.5, y)))
    return op.Mul(inner, axes.like(float(dx), y))
