"""Elementwise operators that torchlib lacks, or has for fewer dtypes than torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.marking import lowering


def as_float(self: ir.Value) -> ir.Value:
    """Integers and truth values as float32, floating point as it is."""
    if axes.is_float(self):
        return self
    return axes.shaped(op.Cast(self, to=ir.DataType.FLOAT), self.shape)


@lowering("aten::hypot", "prims::hypot")
def hypot(self: ir.Value, other: ir.Value) -> RecordedValue:
    """sqrt(a^2 + b^2) without overflow on the way; infinite where one is, even beside NaN."""
    left, right = op.Abs(self), op.Abs(other)
    large, small = op.Max(left, right), op.Min(left, right)
    ratio = op.Div(small, op.Where(op.Equal(large, op.CastLike(0.0, self)), op.CastLike(1.0, self), large))
    result = op.Mul(large, op.Sqrt(op.Add(op.Mul(ratio, ratio), op.CastLike(1.0, self))))
    return op.Where(op.Or(op.IsInf(left), op.IsInf(right)), axes.like(float("inf"), self), result)


@lowering("aten::signbit", "prims::signbit")
def signbit(self: ir.Value) -> RecordedValue:
    """Whether the sign is a minus, that of -0.0 included."""
    negative = op.Less(self, op.CastLike(0, self))
    return op.Or(negative, op.Less(op.Reciprocal(self), op.CastLike(0, self))) if axes.is_float(self) else negative


@lowering("aten::lerp.Tensor", "aten::lerp.Scalar")
def lerp(self: ir.Value, end: ir.Value, weight: Number) -> RecordedValue:
    """From one number towards another; from weight 1/2 on it is measured from the end, as in torch."""
    distance = op.Sub(end, self)
    if isinstance(weight, ir.Value):
        near = op.Add(self, op.Mul(weight, distance))
        far = op.Sub(end, op.Mul(distance, op.Sub(axes.like(1.0, self), weight)))
        return op.Where(op.Less(op.Abs(weight), axes.like(0.5, self)), near, far)
    if abs(weight) < 0.5:
        return op.Add(self, op.Mul(axes.like(weight, self), distance))
    return op.Sub(end, op.Mul(distance, axes.like(1.0 - weight, self)))


def _added(
    self: ir.Value, first: ir.Value, second: ir.Value, value: float, of_two: Callable[..., Any]
) -> RecordedValue:
    """A number and what an operator makes of two others, the first of them times a factor.

    Of float16 only the result is rounded, as in torch.
    """
    operands: list[ir.Value] = [self, first, second]
    if self.dtype == ir.DataType.FLOAT16:
        operands = [axes.shaped(op.Cast(one, to=ir.DataType.FLOAT), one.shape) for one in operands]
    start, left, right = operands
    found = op.Add(start, of_two(left if value == 1 else op.Mul(axes.like(value, left), left), right))
    return op.CastLike(found, self) if start is not self else found


@lowering("aten::addcmul")
def addcmul(self: ir.Value, tensor1: ir.Value, tensor2: ir.Value, value: float = 1) -> RecordedValue:
    """self + (value * tensor1) * tensor2, in that order: a factor of 0 is met before what may be infinite."""
    return _added(self, tensor1, tensor2, value, op.Mul)


@lowering("aten::addcdiv")
def addcdiv(self: ir.Value, tensor1: ir.Value, tensor2: ir.Value, value: float = 1) -> RecordedValue:
    """self + (value * tensor1) / tensor2, in that order: 0 / 1e-43 is 0, where 0 * (1 / 1e-43) is NaN."""
    return _added(self, tensor1, tensor2, value, op.Div)


@lowering("aten::softshrink")
def softshrink(self: ir.Value, lambd: float = 0.5) -> RecordedValue:
    """What is left when a number moves by lambd towards 0; 0 of its sign within lambd of it, and NaN stays."""
    edge = axes.like(lambd, self)
    below = op.Where(op.Less(self, op.Neg(edge)), op.Add(self, edge), op.Mul(self, axes.like(0.0, self)))
    return op.Where(op.Greater(self, edge), op.Sub(self, edge), below)


@lowering("aten::gcd", "prims::gcd")
def gcd(self: ir.Value, other: ir.Value) -> ir.Value:
    """The greatest common divisor by Euclid's algorithm; 92 steps suffice for 64 bits (Lame's theorem).

    The smallest integer has no absolute value: in torch's order, and with remainders of the dividend's sign, it is
    never divided by -1, which ends the process that runs onnxruntime, and signs come out as in torch.
    """
    total = op.Add(self, other)
    zero = op.CastLike(0, total)

    def step(_: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        large, small = states
        done = op.Equal(small, zero)
        divisor = op.Where(done, op.CastLike(1, small), small)
        rest = op.Sub(large, op.Mul(op.Div(large, divisor), divisor))
        return op.Where(done, large, small), op.Where(done, small, rest)

    given = [value if value.dtype == total.dtype else op.CastLike(value, total) for value in (other, self)]
    start = [op.Expand(op.Abs(value), op.Shape(total)) for value in given]
    return loops.count(92, step, start)[0]


@lowering("aten::frexp.Tensor", "prims::frexp")
def frexp(self: ir.Value) -> tuple[RecordedValue, ...]:
    """Mantissa in [0.5, 1) and exponent of two; of 0, infinity and NaN themselves, with their sign, and 0."""
    zero, half, one, two = (op.CastLike(number, self) for number in (0.0, 0.5, 1.0, 2.0))
    special = op.Or(op.Or(op.IsInf(self), op.IsNaN(self)), op.Equal(self, zero))
    size = op.Where(special, one, op.Abs(self))
    guess = op.Add(op.Floor(op.Div(op.Log(size), axes.like(math.log(2.0), self))), one)
    mantissa = op.Mul(op.Div(size, op.Pow(two, op.Sub(guess, one))), half)  # 2^128 would be infinite
    high, low = op.GreaterOrEqual(mantissa, one), op.Less(mantissa, half)
    exponent = op.Add(guess, op.Sub(op.CastLike(high, self), op.CastLike(low, self)))
    mantissa = op.Mul(op.Div(self, op.Pow(two, op.Sub(exponent, one))), half)
    return mantissa, op.Cast(op.Where(special, zero, exponent), to=ir.DataType.INT32)


@lowering("aten::sinc", "aten::special_sinc")
def sinc(self: ir.Value) -> RecordedValue:
    """sin(pi x) / (pi x), 1 at 0; of halves in float32, since a rounded pi is wrong by many turns at a large x."""
    if self.dtype == ir.DataType.FLOAT16:
        wide = axes.shaped(op.Cast(self, to=ir.DataType.FLOAT), self.shape)
        return op.Cast(sinc(wide), to=ir.DataType.FLOAT16)
    data = as_float(self)
    scaled = op.Mul(data, axes.like(math.pi, data))
    is_zero = op.Equal(data, op.CastLike(0.0, data))
    safe = op.Where(is_zero, op.CastLike(1.0, data), scaled)
    return op.Where(is_zero, op.CastLike(1.0, data), op.Div(op.Sin(safe), safe))


@lowering("aten::isclose")
def isclose(
    self: ir.Value, other: ir.Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> RecordedValue:
    """|a - b| <= atol + rtol |b| for finite numbers; equal values (infinities included) are always close."""
    equal = op.Equal(self, other)
    if self.dtype == ir.DataType.BOOL:
        return equal
    left, right = (value if axes.is_float(value) else op.Cast(value, to=ir.DataType.DOUBLE) for value in (self, other))
    if equal_nan and axes.is_float(self):
        equal = op.Or(equal, op.And(op.IsNaN(left), op.IsNaN(right)))
    distance = op.Abs(op.Sub(left, right))
    allowed = op.Add(op.CastLike(atol, left), op.Abs(op.Mul(op.CastLike(rtol, left), right)))
    near = op.And(op.LessOrEqual(distance, allowed), op.Less(distance, op.CastLike(float("inf"), left)))
    return op.Or(equal, near)


@lowering("aten::_conj_physical", "prims::conj_physical", is_complex=True)
def conjugate(self: ir.Value) -> RecordedValue:
    """The conjugate of complex numbers stored as pairs."""
    return op.Mul(self, op.CastLike(op.Constant(value_floats=[1.0, -1.0]), self))


@lowering("aten::_neg_view")
def negative(self: ir.Value) -> RecordedValue:
    """The imaginary parts of conjugates, which torch keeps as a mark on a view."""
    return op.Neg(self)


@lowering("aten::_conj_physical", "prims::conj_physical", "prims::view_of", "prims::alias")
def same_real(self: ir.Value) -> RecordedValue:
    """The conjugate of real numbers, and views of a whole tensor: the value itself."""
    return op.Identity(self)


@lowering("batch_export_sizes::of_size")
def same_of_size(self: ir.Value, size: Sequence[object], stride: object) -> RecordedValue:
    """A tensor of which the program knows on one way what some of its sizes are: the value itself.

    Where one is a number there it becomes another value: that size is neither free there nor fixed elsewhere.
    """
    del stride
    numbers = [
        one if isinstance(one, int) and axes.fixed_size(self, place) is None else 0 for place, one in enumerate(size)
    ]
    return op.Reshape(self, op.Constant(value_ints=numbers)) if any(numbers) else op.Identity(self)


@lowering("prims::view_of", "prims::alias", is_complex=True)
def same_complex(self: ir.Value) -> RecordedValue:
    """A view of a whole complex tensor."""
    return op.Identity(self)
