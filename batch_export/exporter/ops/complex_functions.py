"""Functions of complex numbers, stored as pairs of real ones: roots, logarithms, powers, circular and hyperbolic ones.

Computed in float64, where the formulas lose no digit that float32 has; principal values, cut where C99 cuts them.
Source: W. Kahan, Branch cuts for complex elementary functions, and Abramowitz and Stegun, chapter 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from batch_export.exporter.graph.complex_parts import is_pair, joined, paired, part
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import ComplexNumber, RecordedValue
from batch_export.exporter.ops import axes, signs
from batch_export.exporter.ops.complex_numbers import not_equal, to_dtype
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.norms import vector_norm
from batch_export.exporter.ops.sorting import nonzero

Parts = tuple[RecordedValue, RecordedValue]
"""Real and imaginary parts in float64."""


def _parts(pairs: ir.Value) -> Parts:
    wide = [op.Cast(part(pairs, which), to=ir.DataType.DOUBLE) for which in (0, 1)]
    for one in wide:
        axes.shaped(one, None if pairs.shape is None else list(pairs.shape)[:-1])
    return wide[0], wide[1]


def _pairs(parts: Parts, like: ir.Value) -> RecordedValue:
    return op.CastLike(joined(*parts), like)


def _minus(z: Parts) -> Parts:
    return op.Neg(z[0]), op.Neg(z[1])


def _turned(z: Parts) -> Parts:
    """i z."""
    return op.Neg(z[1]), z[0]


def _turned_back(z: Parts) -> Parts:
    """-i z."""
    return z[1], op.Neg(z[0])


def _plus(z: Parts, real: float) -> Parts:
    return op.Add(z[0], number(real)), z[1]


def _times(z: Parts, w: Parts) -> Parts:
    real = op.Sub(op.Mul(z[0], w[0]), op.Mul(z[1], w[1]))
    return real, op.Add(op.Mul(z[0], w[1]), op.Mul(z[1], w[0]))


def _scaled(z: Parts, factor: float) -> Parts:
    return op.Mul(z[0], number(factor)), op.Mul(z[1], number(factor))


def _length(z: Parts) -> RecordedValue:
    return op.Sqrt(op.Add(op.Mul(z[0], z[0]), op.Mul(z[1], z[1])))


def _inverse(z: Parts) -> Parts:
    size = op.Add(op.Mul(z[0], z[0]), op.Mul(z[1], z[1]))
    return op.Div(z[0], size), op.Neg(op.Div(z[1], size))


def _chosen(condition: ir.Value, z: Parts, w: Parts) -> Parts:
    return op.Where(condition, z[0], w[0]), op.Where(condition, z[1], w[1])


def _exp(z: Parts) -> Parts:
    size = op.Exp(z[0])
    nothing = op.Equal(size, number(0.0))  # in whatever direction
    return op.Where(nothing, size, op.Mul(size, op.Cos(z[1]))), op.Where(nothing, size, op.Mul(size, op.Sin(z[1])))


def _log(z: Parts) -> Parts:
    return op.Log(_length(z)), signs.atan2(z[1], z[0])


def _sqrt(z: Parts) -> Parts:
    half = op.Sqrt(op.Mul(op.Add(_length(z), op.Abs(z[0])), number(0.5)))
    other = op.Div(op.Abs(z[1]), op.Where(op.Equal(half, number(0.0)), number(1.0), op.Add(half, half)))
    is_left = op.Less(z[0], number(0.0))
    size = op.Where(is_left, half, other)
    return op.Where(is_left, other, half), signs.copysign(size, z[1])


def _hyperbolic(z: Parts) -> Parts:
    """sinh."""
    return op.Mul(op.Sinh(z[0]), op.Cos(z[1])), op.Mul(op.Cosh(z[0]), op.Sin(z[1]))


def _cosh(z: Parts) -> Parts:
    return op.Mul(op.Cosh(z[0]), op.Cos(z[1])), op.Mul(op.Sinh(z[0]), op.Sin(z[1]))


def _tanh(z: Parts) -> Parts:
    a = op.Clip(op.Add(z[0], z[0]), number(-60.0), number(60.0))
    b = op.Add(z[1], z[1])
    below = op.Add(op.Cosh(a), op.Cos(b))
    return op.Div(op.Sinh(a), below), op.Div(op.Sin(b), below)


def _asinh(z: Parts) -> Parts:
    is_left = op.Less(z[0], number(0.0))
    right = _chosen(is_left, _minus(z), z)
    root = _sqrt(_plus(_times(right, right), 1.0))
    found = _log((op.Add(right[0], root[0]), op.Add(right[1], root[1])))
    return _chosen(is_left, _minus(found), found)


def _acosh(z: Parts) -> Parts:
    root = _times(_sqrt(_plus(z, 1.0)), _sqrt(_plus(z, -1.0)))
    return _log((op.Add(z[0], root[0]), op.Add(z[1], root[1])))


def _atanh(z: Parts) -> Parts:
    over, under = _log(_plus(z, 1.0)), _log(_plus(_minus(z), 1.0))
    return _scaled((op.Sub(over[0], under[0]), op.Sub(over[1], under[1])), 0.5)


def _asin(z: Parts) -> Parts:
    return _turned_back(_asinh(_turned(z)))


def _acos(z: Parts) -> Parts:
    return _plus(_minus(_asin(z)), math.pi / 2)


def _sigmoid(z: Parts) -> Parts:
    return _inverse(_plus(_exp(_minus(z)), 1.0))


def _of(self: ir.Value, function: Callable[[Parts], Parts]) -> RecordedValue:
    return _pairs(function(_parts(self)), self)


@lowering("aten::sqrt", "prims::sqrt", is_complex=True)
def square_root(self: ir.Value) -> RecordedValue:
    """The root in the right half plane."""
    return _of(self, _sqrt)


@lowering("aten::rsqrt", "prims::rsqrt", is_complex=True)
def inverse_square_root(self: ir.Value) -> RecordedValue:
    """1 over the root."""
    return _of(self, lambda z: _inverse(_sqrt(z)))


@lowering("aten::log", "prims::log", is_complex=True)
def logarithm(self: ir.Value) -> RecordedValue:
    """The logarithm with an angle in (-pi, pi]."""
    return _of(self, _log)


@lowering("aten::log2", "prims::log2", is_complex=True)
def logarithm_of_two(self: ir.Value) -> RecordedValue:
    """The logarithm to base 2."""
    return _of(self, lambda z: _scaled(_log(z), 1.0 / math.log(2.0)))


@lowering("aten::log10", "prims::log10", is_complex=True)
def logarithm_of_ten(self: ir.Value) -> RecordedValue:
    """The logarithm to base 10."""
    return _of(self, lambda z: _scaled(_log(z), 1.0 / math.log(10.0)))


@lowering("aten::log1p", "prims::log1p", is_complex=True)
def logarithm_beside_one(self: ir.Value) -> RecordedValue:
    """log(1 + z)."""
    return _of(self, lambda z: _log(_plus(z, 1.0)))


@lowering("aten::exp2", "prims::exp2", is_complex=True)
def power_of_two(self: ir.Value) -> RecordedValue:
    """2 to the power of z."""
    return _of(self, lambda z: _exp(_scaled(z, math.log(2.0))))


@lowering("aten::expm1", "prims::expm1", is_complex=True)
def exponential_less_one(self: ir.Value) -> RecordedValue:
    """exp(z) - 1."""
    return _of(self, lambda z: _plus(_exp(z), -1.0))


@lowering("aten::sigmoid", "prims::sigmoid", is_complex=True)
def sigmoid(self: ir.Value) -> RecordedValue:
    """1 / (1 + exp(-z))."""
    return _of(self, _sigmoid)


@lowering("aten::silu", is_complex=True)
def silu(self: ir.Value) -> RecordedValue:
    """z / (1 + exp(-z))."""
    return _of(self, lambda z: _times(z, _sigmoid(z)))


@lowering("aten::sinh", "prims::sinh", is_complex=True)
def hyperbolic_sine(self: ir.Value) -> RecordedValue:
    """sinh."""
    return _of(self, _hyperbolic)


@lowering("aten::cosh", "prims::cosh", is_complex=True)
def hyperbolic_cosine(self: ir.Value) -> RecordedValue:
    """cosh."""
    return _of(self, _cosh)


@lowering("aten::tanh", "prims::tanh", is_complex=True)
def hyperbolic_tangent(self: ir.Value) -> RecordedValue:
    """tanh."""
    return _of(self, _tanh)


@lowering("aten::sin", "prims::sin", is_complex=True)
def sine(self: ir.Value) -> RecordedValue:
    """sin(z) = -i sinh(iz)."""
    return _of(self, lambda z: _turned_back(_hyperbolic(_turned(z))))


@lowering("aten::cos", "prims::cos", is_complex=True)
def cosine(self: ir.Value) -> RecordedValue:
    """cos(z) = cosh(iz)."""
    return _of(self, lambda z: _cosh(_turned(z)))


@lowering("aten::tan", "prims::tan", is_complex=True)
def tangent(self: ir.Value) -> RecordedValue:
    """tan(z) = -i tanh(iz)."""
    return _of(self, lambda z: _turned_back(_tanh(_turned(z))))


@lowering("aten::asinh", "prims::asinh", is_complex=True)
def area_sine(self: ir.Value) -> RecordedValue:
    """The inverse of sinh."""
    return _of(self, _asinh)


@lowering("aten::acosh", "prims::acosh", is_complex=True)
def area_cosine(self: ir.Value) -> RecordedValue:
    """The inverse of cosh, in the right half plane."""
    return _of(self, _acosh)


@lowering("aten::atanh", "prims::atanh", is_complex=True)
def area_tangent(self: ir.Value) -> RecordedValue:
    """The inverse of tanh."""
    return _of(self, _atanh)


@lowering("aten::asin", "prims::asin", is_complex=True)
def arc_sine(self: ir.Value) -> RecordedValue:
    """The inverse of sin."""
    return _of(self, _asin)


@lowering("aten::acos", "prims::acos", is_complex=True)
def arc_cosine(self: ir.Value) -> RecordedValue:
    """The inverse of cos."""
    return _of(self, _acos)


@lowering("aten::atan", "prims::atan", is_complex=True)
def arc_tangent(self: ir.Value) -> RecordedValue:
    """The inverse of tan."""
    return _of(self, lambda z: _turned_back(_atanh(_turned(z))))


@lowering("aten::abs", "prims::abs", is_complex=True)
def absolute(self: ir.Value) -> RecordedValue:
    """The length; infinite where one part is, whatever the other one: that part then stands for both."""
    others = axes.shaped(op.Gather(self, [1, 0], axis=-1), self.shape)
    kept = op.Where(op.IsInf(self), self, others)
    length = op.CastLike(op.ReduceL2(op.Cast(kept, to=ir.DataType.DOUBLE), [-1], keepdims=0), self)
    return axes.shaped(length, None if self.shape is None else list(self.shape)[:-1])


@lowering("aten::linalg_vector_norm", is_complex=True)
def norm(
    self: ir.Value, ord: float = 2.0, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1
) -> RecordedValue:
    """The norm of the lengths, which is real."""
    wide = ir.DataType.DOUBLE if dtype in (ir.DataType.COMPLEX128, ir.DataType.DOUBLE) else -1
    return vector_norm(absolute(self), ord, dim, keepdim, wide)


@lowering("aten::neg", "prims::neg", is_complex=True)
def negative(self: ir.Value) -> RecordedValue:
    """-z."""
    return op.Neg(self)


_POWERS: Mapping[complex, Callable[[Parts], Parts]] = {
    0.5: _sqrt,
    -0.5: lambda z: _inverse(_sqrt(z)),
    -1.0: _inverse,
    2.0: lambda z: _times(z, z),
    3.0: lambda z: _times(_times(z, z), z),
    -2.0: lambda z: _inverse(_times(z, z)),
}


@lowering("aten::pow.Tensor_Tensor", "aten::pow.Tensor_Scalar", "aten::pow.Scalar", "prims::pow", is_complex=True)
def power(self: ComplexNumber, exponent: ComplexNumber) -> RecordedValue:
    """exp(w log z); 0 to a power right of 0 is 0, to any other infinite or NaN; the number 0 as exponent gives 1."""
    like = self if is_pair(self) else exponent
    assert isinstance(like, ir.Value)
    if not isinstance(exponent, ir.Value) and exponent == 0:
        return op.Expand(paired(1.0, like), op.Shape(like))
    if not isinstance(exponent, ir.Value) and (simple := _POWERS.get(complex(exponent))) is not None:
        return _of(like, simple)  # as eager, which loses no zero and no infinity there
    z, w = _parts(paired(self, like)), _parts(paired(exponent, like))
    zero, one = number(0.0), number(1.0)
    is_zero = op.And(op.Equal(z[0], zero), op.Equal(z[1], zero))
    safe = op.Where(is_zero, one, z[0]), z[1]
    found = _exp(_times(w, _log(safe)))
    is_told = op.Not(_is_open_at_zero(z, w))
    other = op.Where(op.And(op.Greater(w[0], zero), is_told), zero, number(math.nan))
    real = op.Where(op.And(op.Less(w[0], zero), is_told), number(math.inf), other)
    return _pairs((op.Where(is_zero, real, found[0]), op.Where(is_zero, other, found[1])), like)


def _is_open_at_zero(z: Parts, w: Parts) -> RecordedValue:
    """Whether w log z of a zero z has no real part and an imaginary one: infinity less infinity, or times 0."""
    zero, one, half_turn = number(0.0), number(1.0), number(math.pi)
    turned = op.Where(op.Less(op.Div(one, z[1]), zero), op.Neg(half_turn), half_turn)
    angle = op.Where(op.Less(op.Div(one, z[0]), zero), turned, zero)
    real, imaginary = _times(w, (number(-math.inf), angle))
    return op.And(op.IsNaN(real), op.Not(op.IsNaN(imaginary)))


@lowering("prims::convert_element_type", is_complex=True)
def convert_element_type(a: ir.Value, dtype: int) -> RecordedValue:
    """As `to`."""
    return to_dtype(a, dtype)


@lowering("aten::nonzero", is_complex=True)
def places(self: ir.Value) -> RecordedValue:
    """The places of numbers that are not 0, `int64[n, rank]`."""
    return nonzero(axes.shaped(not_equal(self, 0), None if self.shape is None else list(self.shape)[:-1]))


@lowering("aten::logical_not", is_complex=True)
def logical_not(self: ir.Value) -> RecordedValue:
    """Whether a number is 0."""
    return op.Not(not_equal(self, 0))


def _variance(self: ir.Value, dim: Sequence[int] | None, correction: float | None, keepdim: bool) -> Parts:
    """The variance, which is real, and the mean as pairs."""
    count = axes.rank(self) - 1
    listed = sorted({one % count for one in dim}) if dim and count else list(range(count))
    wide = axes.shaped(op.Cast(self, to=ir.DataType.DOUBLE), self.shape)
    sizes = [op.Cast(axes.size(self, axis), to=ir.DataType.DOUBLE) for axis in listed]
    elements: RecordedValue = number(1.0)
    for size in sizes:
        elements = op.Mul(elements, op.Squeeze(size, [0]))
    mean = op.Div(op.ReduceSum(wide, listed, keepdims=1), elements) if listed else wide  # of nothing NaN
    apart = op.Sub(wide, mean)
    summed = op.ReduceSum(op.Mul(apart, apart), [*listed, count], keepdims=1)
    freedom = op.Sub(elements, number(1.0 if correction is None else float(correction)))
    variance = op.Squeeze(op.Div(summed, op.Max(freedom, number(0.0))), [count])
    if listed and not keepdim:
        variance, mean = op.Squeeze(variance, listed), op.Squeeze(mean, listed)
    real = ir.DataType.FLOAT if self.dtype == ir.DataType.FLOAT else ir.DataType.DOUBLE
    return op.Cast(variance, to=real), op.Cast(mean, to=real)


@lowering("aten::var.correction", is_complex=True)
def variance(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> RecordedValue:
    """The mean square distance from the mean."""
    return _variance(self, dim, correction, keepdim)[0]


@lowering("aten::std.correction", is_complex=True)
def deviation(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> RecordedValue:
    """The root of the variance."""
    return op.Sqrt(_variance(self, dim, correction, keepdim)[0])


@lowering("aten::var_mean.correction", is_complex=True)
def variance_and_mean(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> Parts:
    """The variance and the mean."""
    return _variance(self, dim, correction, keepdim)


@lowering("aten::std_mean.correction", is_complex=True)
def deviation_and_mean(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> Parts:
    """The deviation and the mean."""
    found, mean = _variance(self, dim, correction, keepdim)
    return op.Sqrt(found), mean
