"""Shifts of integers as products and quotients, since ONNX shifts unsigned integers only.

A shift by more bits than there are, or by a negative number of them, gives 0, or the sign to the right, as in torch.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.division import floored, operands
from batch_export.exporter.ops.marking import lowering


def _powers(value: ir.Value, count: int) -> RecordedValue:
    """1, 2, 4, ... in a value's dtype, and 0 at the end."""
    assert value.dtype is not None
    table = [*(1 << bit for bit in range(count)), 0]
    return op.Constant(value=ir.tensor(np.array(table, dtype=np.uint64).astype(value.dtype.numpy())))


def _places(amount: ir.Value, count: int) -> RecordedValue:
    """Where in a table of `count` entries and a last one to look: amounts out of range mean the last one."""
    wide = op.Cast(amount, to=ir.DataType.INT64)
    outside = op.Or(op.Less(wide, axes.like(0, wide)), op.GreaterOrEqual(wide, axes.like(count, wide)))
    return op.Where(outside, axes.like(count, wide), wide)


@lowering(
    "aten::__lshift__.Scalar", "aten::__lshift__.Tensor", "aten::bitwise_left_shift.Tensor",
    "aten::bitwise_left_shift.Tensor_Scalar", "aten::bitwise_left_shift.Scalar_Tensor", "_operator::lshift",
)  # fmt: skip
def shift_left(self: Number, other: Number) -> RecordedValue:
    """Times a power of two; what leaves the dtype is lost."""
    value, amount = operands(self, other)
    assert value.dtype is not None
    bits = value.dtype.bitwidth
    return op.Mul(value, op.Gather(_powers(value, bits), _places(amount, bits)))


@lowering(
    "aten::__rshift__.Scalar", "aten::__rshift__.Tensor", "aten::bitwise_right_shift.Tensor",
    "aten::bitwise_right_shift.Tensor_Scalar", "aten::bitwise_right_shift.Scalar_Tensor", "_operator::rshift",
)  # fmt: skip
def shift_right(self: Number, other: Number) -> RecordedValue:
    """Over a power of two, rounded down, so that the sign stays."""
    value, amount = operands(self, other)
    assert value.dtype is not None
    bits = value.dtype.bitwidth - int(value.dtype.is_signed())
    found = op.Gather(_powers(value, bits), _places(amount, bits))
    is_out = op.Equal(found, axes.like(0, value))
    quotient = floored(value, op.Where(is_out, axes.like(1, value), found), is_positive=True)
    sign = op.Neg(op.CastLike(op.Less(value, axes.like(0, value)), value)) if value.dtype.is_signed() else None
    return op.Where(is_out, axes.like(0, value) if sign is None else sign, quotient)
