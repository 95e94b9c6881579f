"""Division with rounding, remainders and what is left of a number without its integer part.

Integers stay integers: through float32 they would be wrong beyond 2^24. Of floating point numbers the quotient is
formed from the exact remainder, as torch does it, since the floor of a rounded quotient may be one too large, and so
that infinities give what they give in torch. A divisor that is a number of the model saves the nodes that find out its
sign. onnxruntime's Where keeps the sign of a zero in its last branch only, so that is where such zeros stand.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.never_negative import is_never_negative


def operands(self: Number, other: Number) -> tuple[ir.Value, ir.Value]:
    """Both operands as values; a number takes the other one's dtype, and beside another number torch's own."""
    if not isinstance(self, ir.Value) and not isinstance(other, ir.Value):
        is_whole = isinstance(self, int) and isinstance(other, int)
        self = op.Constant(value_int=int(self)) if is_whole else op.Constant(value_float=float(self))
        self = axes.at_least_0d(self)
    if not isinstance(self, ir.Value):
        assert isinstance(other, ir.Value)
        return axes.like(self, other), other
    return self, other if isinstance(other, ir.Value) else axes.like(other, self)


def _in_float32(self: Number, other: Number) -> tuple[ir.Value, ir.Value]:
    """Both operands of a quotient that is rounded, as torch computes it of float16: a divisor is any number then."""
    left, right = operands(self, other)
    wide = [axes.shaped(op.Cast(value, to=ir.DataType.FLOAT), value.shape) for value in (left, right)]
    return wide[0], wide[1] if isinstance(other, ir.Value) else axes.like(other, wide[0])


def _no_zero(self: ir.Value, other: ir.Value) -> ir.Value:
    """A scalar that divides integers and may be a free size of 0, by which torch divides only what has no elements."""
    if not isinstance(other, ir.Value) or other.shape != () or loops.recorder().known(other) is not None:
        return other
    if other.producer() is None:
        return other
    if is_never_negative(other):  # in a round that stands in the place of none, too
        return op.Max(other, axes.like(1, other))
    if self.shape == ():
        return other
    return op.Where(op.Equal(other, axes.like(0, other)), axes.like(1, other), other)


def _sign(value: ir.Value) -> int:
    """1 or -1 for a number of the model that is known and not 0; 0 for what is not known."""
    array = loops.recorder().known(value)
    if array is None or array.size != 1:
        return 0
    number = float(array.item())
    return (number > 0) - (number < 0)


def _is_minus_one(value: ir.Value) -> bool:
    """Whether a divisor is -1: dividing the smallest integer by it ends the process that runs onnxruntime."""
    array = loops.recorder().known(value)
    return array is not None and array.size > 0 and bool((array == -1).all())


def _is_never_minus_one(value: ir.Value) -> bool:
    array = loops.recorder().known(value)
    return _is_unsigned(value) or (array is not None and not bool((array == -1).any()))


def quotient_of(self: ir.Value, other: ir.Value, *, is_positive: bool = False) -> RecordedValue:
    """The quotient of integers, rounded towards 0; nothing is divided by -1."""
    if _is_minus_one(other):
        return op.Mul(self, other)
    if is_positive or _is_never_minus_one(other):
        return op.Div(self, other)
    is_minus_one = op.Equal(other, axes.like(-1, other))
    quotient = op.Div(self, op.Where(is_minus_one, axes.like(1, other), other))
    return op.Where(is_minus_one, op.Sub(axes.like(0, self), self), quotient)


def _opposed(rest: ir.Value, other: ir.Value) -> RecordedValue:
    """Whether a remainder has the other sign than the divisor; a remainder of 0 has none."""
    zero = axes.like(0, rest)
    sign = _sign(other)
    if sign:
        return op.Less(rest, zero) if sign > 0 else op.Greater(rest, zero)
    differ = op.Xor(op.Less(rest, zero), op.Less(other, zero))
    return op.And(differ, op.Not(op.Equal(rest, zero)))


def _is_unsigned(value: ir.Value) -> bool:
    return value.dtype is not None and not value.dtype.is_signed()


def floored(self: ir.Value, other: ir.Value, *, is_positive: bool = False) -> RecordedValue:
    """The quotient of integers, rounded down; `is_positive` says that of the divisor."""
    quotient = quotient_of(self, other, is_positive=is_positive)
    if _is_unsigned(self) or _is_minus_one(other):
        return quotient
    rest = op.Sub(self, op.Mul(quotient, other))
    return op.Sub(quotient, op.CastLike(_opposed(rest, other), self))


def _floored_float(self: ir.Value, other: ir.Value) -> RecordedValue:
    quotient, rest = op.Div(self, other), op.Mod(self, other, fmod=1)
    one, half, zero = (axes.like(number, self) for number in (1.0, 0.5, 0.0))
    exact = op.Div(op.Sub(self, rest), other)
    exact = op.Where(_opposed(rest, other), op.Sub(exact, one), exact)
    floor = op.Floor(exact)
    floor = op.Where(op.Greater(op.Sub(exact, floor), half), op.Add(floor, one), floor)
    # A quotient of 0 has the sign of the rounded one; NaN, which no comparison finds, stays NaN.
    floor = op.Where(op.Greater(op.Abs(exact), zero), floor, op.Mul(quotient, zero))
    return floor if _sign(other) else op.Where(op.Equal(other, zero), quotient, floor)


def truncated(value: ir.Value) -> RecordedValue:
    """A number without what follows the point; a zero keeps its sign."""
    return op.Where(op.Greater(value, axes.like(0.0, value)), op.Floor(value), op.Ceil(value))


@lowering("aten::floor_divide", "aten::floor_divide.Scalar", "aten::div.Tensor_mode", "aten::div.Scalar_mode")
def divide(self: Number, other: Number, rounding_mode: str | None = "floor") -> RecordedValue:
    """`aten::div` with its three ways of rounding, and `aten::floor_divide`."""
    left, right = operands(self, other)
    if rounding_mode is None:
        return op.Div(left, right)
    if axes.is_float(left):
        is_half = left.dtype == ir.DataType.FLOAT16
        left, right = _in_float32(self, other) if is_half else (left, right)
        quotient = truncated(op.Div(left, right)) if rounding_mode == "trunc" else _floored_float(left, right)
        return op.Cast(quotient, to=ir.DataType.FLOAT16) if is_half else quotient
    divisor = _no_zero(left, right)
    return quotient_of(left, divisor) if rounding_mode == "trunc" else floored(left, divisor)


@lowering("aten::remainder.Tensor", "aten::remainder.Scalar", "aten::remainder.Scalar_Tensor")
def remainder(self: Number, other: Number) -> RecordedValue:
    """The remainder with the sign of the divisor."""
    left, right = operands(self, other)
    if not axes.is_float(left):
        if _is_minus_one(right):
            return op.Sub(left, op.Mul(left, op.Neg(right)))
        divisor = _no_zero(left, right)
        if not _is_never_minus_one(divisor):  # the remainder of which is that of 1
            divisor = op.Where(op.Equal(divisor, axes.like(-1, divisor)), axes.like(1, divisor), divisor)
        return op.Mod(left, divisor)
    rest = op.Mod(left, right, fmod=1)
    return op.Where(_opposed(rest, right), op.Add(rest, right), rest)


@lowering("aten::fmod.Tensor", "aten::fmod.Scalar", "prims::fmod")
def fmod(self: Number, other: Number) -> RecordedValue:
    """The remainder with the sign of the dividend; that of integers by a division, since Mod goes through float64."""
    left, right = operands(self, other)
    if axes.is_float(left):
        return op.Mod(left, right, fmod=1)
    divisor = _no_zero(left, right)
    return op.Sub(left, op.Mul(quotient_of(left, divisor), divisor))


@lowering("aten::trunc", "aten::fix", "prims::trunc")
def trunc(self: ir.Value) -> RecordedValue:
    """Rounding towards zero, which keeps the sign of a zero."""
    return truncated(self) if axes.is_float(self) else op.Identity(self)


@lowering("aten::frac")
def frac(self: ir.Value) -> RecordedValue:
    """What follows the point, with the number's sign."""
    return op.Sub(self, truncated(self))
