"""Parts of tensors that are picked by place: diagonals, slices from the end, reversed axes.

Elements are gathered, never multiplied by a mask: an infinity or NaN beside the diagonal is none of its business.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.marking import lowering

_FAR = 2**63 - 1


@lowering("aten::flip", "prims::rev")
def flip(self: ir.Value, dims: Sequence[int]) -> RecordedValue:
    """The elements along axes in reverse; a scalar has nothing to reverse."""
    listed = sorted({axes.axis(self, dim) for dim in dims})
    if not listed or axes.rank(self) == 0:
        return op.Identity(self)
    count = len(listed)
    return op.Slice(self, [-1] * count, [-_FAR] * count, listed, [-1] * count)


@lowering("aten::where.self")
def where(condition: ir.Value, self: ir.Value, other: ir.Value) -> RecordedValue:
    """One or the other; of a condition that is known, numbers of the model stand first.

    onnxruntime's Where loses the sign of a zero in its second input.
    """
    recorder = loops.recorder()
    known = recorder.known(condition)
    if known is None or recorder.known(other) is None or recorder.known(self) is not None:
        return op.Where(condition, self, other)
    return op.Where(op.Constant(value=ir.tensor(~known)), other, self)


@lowering("aten::narrow", "aten::narrow_copy")
def narrow(self: ir.Value, dim: int, start: Size, length: Size) -> RecordedValue:
    """`length` elements of an axis; a start before 0 counts from the end."""
    position = axes.axis(self, dim)
    if isinstance(start, int) and isinstance(length, int):
        end = start + length if start >= 0 or start + length < 0 else _FAR
        return op.Slice(self, [start], [end], [position])
    first = op.Reshape(start, [1]) if isinstance(start, ir.Value) else op.Constant(value_ints=[start])
    number = op.Reshape(length, [1]) if isinstance(length, ir.Value) else op.Constant(value_ints=[length])
    if isinstance(start, ir.Value) or start < 0:
        first = op.Where(op.Less(first, [0]), op.Add(first, axes.size(self, position)), first)
    return op.Slice(self, first, op.Add(first, number), [position])


@lowering("aten::diagonal", "aten::diagonal_copy")
def diagonal(self: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> RecordedValue:
    """The diagonal of two axes, as the last axis."""
    rows, columns = axes.axis(self, dim1), axes.axis(self, dim2)
    others = [axis for axis in range(axes.rank(self)) if axis not in (rows, columns)]
    moved = op.Transpose(self, perm=[*others, rows, columns])
    high = op.Sub(axes.size(self, rows), [max(-offset, 0)])
    wide = op.Sub(axes.size(self, columns), [max(offset, 0)])
    length = op.Max(op.Min(high, wide), [0])
    along = op.Range(0, axes.scalar(length), 1)
    below, right = op.Add(along, [max(-offset, 0)]), op.Add(along, [max(offset, 0)])
    places = op.Add(op.Mul(below, axes.size(self, columns)), right)
    leading = [op.Shape(moved, start=0, end=len(others))] if others else []
    merged = axes.reshaped(moved, [*leading, op.Mul(axes.size(self, rows), axes.size(self, columns))])
    return op.Gather(merged, places, axis=len(others))


@lowering("aten::all.dims")
def all_true(self: ir.Value, dim: Sequence[int] | None = None, keepdim: bool = False) -> RecordedValue:
    """Whether no element along the axes is zero."""
    truth = self if self.dtype == ir.DataType.BOOL else op.Cast(self, to=ir.DataType.BOOL)
    if axes.rank(self) == 0 or (dim is not None and not len(dim)):  # no axes are none here, not all
        return op.Identity(truth)
    numbers = op.Cast(truth, to=ir.DataType.INT64)
    listed = sorted({axes.axis(self, one) for one in dim or ()})
    least = (
        op.ReduceMin(numbers, listed, keepdims=int(keepdim)) if listed else op.ReduceMin(numbers, keepdims=int(keepdim))
    )
    return op.Cast(least, to=ir.DataType.BOOL)
