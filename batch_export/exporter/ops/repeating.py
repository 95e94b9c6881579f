"""Elements repeated in a row: by one number, or each by a number of its own."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


@lowering("aten::repeat_interleave.self_int")
def repeat_interleave(
    self: ir.Value, repeats: int, dim: int | None = None, output_size: int | None = None
) -> RecordedValue:
    """`aten::repeat_interleave` with one number: every slice along an axis, that often in a row."""
    if dim is None:
        self, dim = axes.shaped(axes.flat(self), [None]), 0
    count, position = axes.rank(self), axes.axis(self, dim)
    if count == 0:
        self, count = axes.at_least_1d(self), 1
    often = repeats if isinstance(repeats, ir.Value) else op.Constant(value_int=repeats)
    often = op.Reshape(often, [1])
    before, own, after = (
        [op.Shape(self, start=0, end=position)] if position else [],
        axes.size(self, position),
        [op.Shape(self, start=position + 1, end=count)] if position + 1 < count else [],
    )
    spread = op.Expand(op.Unsqueeze(self, [position + 1]), op.Concat(*before, own, often, *after, axis=0))
    return axes.reshaped(spread, [*before, op.Mul(own, often), *after])


@lowering("aten::repeat_interleave.Tensor")
def repeated_places(repeats: ir.Value, output_size: int | None = None) -> RecordedValue:
    """0 as often as the first number says, 1 as often as the second, ...: `int64[sum of repeats]`."""
    counts = repeats if repeats.dtype == ir.DataType.INT64 else op.Cast(repeats, to=ir.DataType.INT64)
    ends = op.CumSum(counts, 0)
    numbers = op.Range(0, op.ReduceSum(counts, keepdims=0), 1)
    behind = op.LessOrEqual(op.Unsqueeze(ends, [0]), op.Unsqueeze(numbers, [1]))
    return op.ReduceSum(op.Cast(behind, to=ir.DataType.INT64), [1], keepdims=0)


@lowering("aten::repeat_interleave.self_Tensor")
def repeat_each(
    self: ir.Value, repeats: ir.Value, dim: int | None = None, output_size: int | None = None
) -> RecordedValue:
    """`aten::repeat_interleave` with a number for each slice along an axis; a single one is for all of them."""
    if dim is None:
        self, dim = axes.shaped(axes.flat(self), [None]), 0
    whole = axes.at_least_1d(self)
    position = axes.axis(whole, dim)
    length = axes.fixed_size(whole, position)
    if length is None or axes.rank(repeats) == 0 or axes.fixed_size(repeats, 0) != length:
        repeats = axes.shaped(op.Expand(repeats, axes.size(whole, position)), [length])
    return op.Gather(whole, repeated_places(repeats), axis=position)
