"""Powers: integers stay integers and wrap around as they do in torch, and square roots are written as such."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.division import operands
from batch_export.exporter.ops.marking import lowering

_BITS = 63
"""Exponents are int64 at most, and are not negative where these are read."""


def whole_power(base: ir.Value, exponent: int) -> ir.Value:
    """By repeated squaring; of a negative exponent only 1 and -1 have a power that is not 0."""
    one = axes.like(1, base)
    if exponent < 0:
        odd = whole_power(base, 1 if exponent % 2 else 2)
        return op.Mul(odd, op.CastLike(op.Equal(op.Abs(base), one), base))
    result, square = None, base
    while exponent:
        if exponent & 1:
            result = square if result is None else op.Mul(result, square)
        exponent >>= 1
        square = op.Mul(square, square) if exponent else square
    return op.Expand(one, op.Shape(base)) if result is None else result


def _whole_powers(base: ir.Value, exponent: ir.Value) -> ir.Value:
    """Powers whose exponents are a tensor of integers."""
    one, zero, two = (axes.like(number, base) for number in (1, 0, 2))
    shape = op.Shape(op.Add(base, exponent))
    base, exponent = (op.Expand(value, shape) for value in (base, exponent))
    negative = op.Less(exponent, zero) if base.dtype is not None and base.dtype.is_signed() else None
    left = exponent if negative is None else op.Abs(exponent)

    def step(_: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        result, square, rest = states
        half = op.Div(rest, two)
        odd = op.Not(op.Equal(op.Mul(half, two), rest))
        return op.Where(odd, op.Mul(result, square), result), op.Mul(square, square), half

    assert base.dtype is not None
    count = min(_BITS, base.dtype.bitwidth)
    result = loops.count(count, step, [op.Expand(one, shape), base, left])[0]
    if negative is None:
        return result
    is_unit = op.Equal(op.Abs(base), one)
    return op.Where(op.And(negative, op.Not(is_unit)), zero, result)


@lowering("aten::pow.Tensor_Scalar", "aten::pow.Tensor_Tensor", "aten::pow.Scalar", "prims::pow")
def power(self: Number, exponent: Number) -> ir.Value:
    """`aten::pow` of tensors and numbers."""
    given = exponent
    base, exponent = operands(self, exponent)
    if axes.is_float(base) or axes.is_float(exponent):
        # Torch takes the square root, of -inf NaN, but for float16, of which it takes the power.
        if given in (0.5, -0.5) and not isinstance(given, ir.Value) and base.dtype != ir.DataType.FLOAT16:
            root = op.Sqrt(base)
            return root if given > 0 else op.Reciprocal(root)
        return op.Pow(base, exponent)
    return _whole_powers(base, exponent) if isinstance(given, ir.Value) else whole_power(base, int(given))


@lowering("aten::square")
def square(self: ir.Value) -> RecordedValue:
    """The product with itself."""
    return op.Mul(self, self)


@lowering("aten::ldexp.Tensor")
def ldexp(self: ir.Value, other: ir.Value) -> RecordedValue:
    """x times 2 to the power of a tensor of integers, rounded once: the power alone may be infinite where x is tiny."""
    wide = ir.DataType.DOUBLE
    if not axes.is_float(self) or axes.is_float(other):  # torch multiplies by the power
        base = self if axes.is_float(self) else op.Cast(self, to=ir.DataType.FLOAT)
        power = other if axes.is_float(other) else op.CastLike(other, base)
        return op.Mul(base, op.Pow(axes.like(2.0, power), power))
    data = op.Cast(self, to=wide)
    power = op.Cast(other, to=wide)
    if self.dtype != wide:  # beyond these, no float32 is left
        power = op.Max(op.Min(power, axes.like(400.0, power)), axes.like(-400.0, power))
        return op.CastLike(op.Mul(data, op.Pow(axes.like(2.0, power), power)), self)
    power = op.Max(op.Min(power, axes.like(2200.0, power)), axes.like(-2200.0, power))
    third = op.Floor(op.Div(power, axes.like(3.0, power)))
    part = op.Pow(axes.like(2.0, power), third)
    rest = op.Pow(axes.like(2.0, power), op.Sub(power, op.Add(third, third)))
    return op.Mul(op.Mul(op.Mul(data, part), part), rest)
