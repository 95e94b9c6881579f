"""The next number towards another one, as the dtype has it.

x times half the dtype's rounding unit is at least half the distance of x and its neighbour and less than all of it, so
that x plus a little more than that rounds to the neighbour.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.marking import lowering

_FORMATS = {
    ir.DataType.FLOAT: (24, 2.0**-126, 2.0**-149),
    ir.DataType.DOUBLE: (53, 2.0**-1022, 2.0**-1074),
    ir.DataType.FLOAT16: (11, 2.0**-14, 2.0**-24),
    ir.DataType.BFLOAT16: (8, 2.0**-126, 2.0**-133),
}
"""Digits, the smallest normal number, the smallest number."""
_LIFTED, _LIFT = 2.0**-900, 2.0**100


@lowering("aten::nextafter", "prims::nextafter")
def nextafter(self: ir.Value, other: ir.Value) -> RecordedValue:
    """The number next to `self` in the direction of `other`; `other` where they are equal."""
    known = _FORMATS.get(self.dtype or ir.DataType.UNDEFINED)
    if known is None:
        raise TranslationError(f"nextafter of {self.dtype} is not translated", next_step="cast to float32 before it")
    digits, normal, smallest = known
    x, y = op.Cast(self, to=ir.DataType.DOUBLE), op.Cast(other, to=ir.DataType.DOUBLE)
    up = op.Where(op.Greater(y, x), number(1.0), number(-1.0))
    share = number(2.0**-digits * (1.0 + 2.0**-3 if digits < 12 else 1.0 + 2.0**-10))
    size = op.Abs(x)
    if self.dtype == ir.DataType.DOUBLE:  # where x times the unit is not exact, it is computed further up
        is_small = op.Less(size, number(_LIFTED))
        lifted = op.Where(is_small, op.Mul(x, number(_LIFT)), x)
        moved = op.Add(lifted, op.Mul(up, op.Mul(op.Abs(lifted), share)))
        moved = op.Where(is_small, op.Div(moved, number(_LIFT)), moved)
    else:
        moved = op.Add(x, op.Mul(up, op.Mul(size, share)))
    moved = op.Where(op.Less(size, number(2.0 * normal)), op.Add(x, op.Mul(up, number(smallest))), moved)
    made = op.CastLike(moved, self)
    top = (2.0 - 2.0 ** (1 - digits)) * 2.0 ** (15 if self.dtype == ir.DataType.FLOAT16 else 127)
    highest = number(top if self.dtype != ir.DataType.DOUBLE else (2.0 - 2.0**-52) * 2.0**1023)
    from_end = op.CastLike(op.Mul(op.Sign(x), highest), self)
    made = op.Where(op.IsInf(x), from_end, made)
    made = op.Where(op.Equal(x, y), other, made)
    return op.Where(op.Or(op.IsNaN(x), op.IsNaN(y)), op.CastLike(number(math.nan), self), made)
