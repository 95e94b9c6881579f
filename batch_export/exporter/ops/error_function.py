"""The error function and its relatives, with the relative accuracy of their dtype far from 0 as well.

erf(x) of float32 is ONNX's own operator. Elsewhere: erfc(x) = exp(-x^2) erfcx(x), where (1 + 2 x) erfcx(x) is a
Chebyshev series in (x - 3.75) / (x + 3.75) for x >= 0 (the change of variable of Shepherd and Laframboise, 1981), whose
coefficients are computed here from `math.erfc` and, for large x, from Laplace's continued fraction; erf(x) near 0 is
its Taylor series. Inverse: M. Giles, Approximating the erfinv function (2010), and for float64 two steps of Newton.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.elementwise import as_float
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.stable import log_one_plus

_MIDDLE = 3.75
_TERMS, _SINGLE_TERMS = 23, 14
"""How much of the series float64 and float32 need."""
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def number(value: float) -> RecordedValue:
    """A float64 scalar."""
    return op.Constant(value=ir.tensor(value, dtype=ir.DataType.DOUBLE))


def polynomial(coefficients: tuple[float, ...], x: RecordedValue) -> RecordedValue:
    """Horner's rule on float64 values, highest power first."""
    total: RecordedValue = number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = op.Add(op.Mul(total, x), number(coefficient))
    return total


def double(self: ir.Value) -> RecordedValue:
    """The value as float64."""
    return axes.shaped(op.Cast(self, to=ir.DataType.DOUBLE), self.shape)


def back(result: RecordedValue, self: ir.Value) -> RecordedValue:
    """A float64 result in the dtype of the argument, of an integer argument in float32."""
    return op.CastLike(result, self) if axes.is_float(self) else op.Cast(result, to=ir.DataType.FLOAT)


def _scaled_at(t: float) -> float:
    """(1 + 2 x) exp(x^2) erfc(x) at the x that t stands for."""
    if t >= 1.0:
        return 2.0 / math.sqrt(math.pi)
    x = _MIDDLE * (1.0 + t) / (1.0 - t)
    if x < 2.0:
        return (1.0 + 2.0 * x) * math.exp(x * x) * math.erfc(x)
    fraction = x
    for index in range(200, 0, -1):
        fraction = x + (index / 2.0) / fraction
    return (1.0 + 2.0 * x) / (math.sqrt(math.pi) * fraction)


@functools.cache
def _coefficients() -> tuple[float, ...]:
    """Of the Chebyshev series, lowest first."""
    series = np.polynomial.chebyshev.chebinterpolate(np.vectorize(_scaled_at), 60)
    return tuple(float(one) for one in series)


def _erfcx_positive(x: RecordedValue, terms: int) -> RecordedValue:
    """exp(x^2) erfc(x) of float64 x >= 0, by Clenshaw's rule."""
    variable = op.Where(op.IsInf(x), number(1.0), op.Div(op.Sub(x, number(_MIDDLE)), op.Add(x, number(_MIDDLE))))
    doubled = op.Add(variable, variable)
    listed = _coefficients()[:terms]
    later, last = number(0.0), number(0.0)
    for coefficient in reversed(listed[1:]):
        later, last = op.Add(op.Sub(op.Mul(doubled, later), last), number(coefficient)), later
    total = op.Add(op.Sub(op.Mul(variable, later), last), number(listed[0]))
    return op.Div(total, op.Add(number(1.0), op.Add(x, x)))


def _terms(self: ir.Value) -> int:
    return _TERMS if self.dtype == ir.DataType.DOUBLE else _SINGLE_TERMS


def complement(x: ir.Value, terms: int = _TERMS) -> RecordedValue:
    """erfc of float64 numbers."""
    size = op.Abs(x)
    positive = op.Mul(op.Exp(op.Neg(op.Mul(x, x))), _erfcx_positive(size, terms))
    return op.Where(op.Less(x, number(0.0)), op.Sub(number(2.0), positive), positive)


def error_function(x: ir.Value) -> RecordedValue:
    """erf of any float dtype."""
    if x.dtype != ir.DataType.DOUBLE:
        return op.Erf(x)
    square = op.Min(op.Mul(x, x), number(1.0))
    taylor = tuple((-1.0) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(19, -1, -1))
    near = op.Mul(op.Mul(x, number(2.0 / math.sqrt(math.pi))), polynomial(taylor, square))
    return op.Where(op.Greater(op.Abs(x), number(1.0)), op.Sub(number(1.0), complement(x, _TERMS)), near)


@lowering("aten::erf", "aten::special_erf", "prims::erf")
def erf(self: ir.Value) -> RecordedValue:
    """The error function."""
    return error_function(as_float(self))


@lowering("aten::erfc", "aten::special_erfc", "prims::erfc")
def erfc(self: ir.Value) -> RecordedValue:
    """1 - erf(x), without cancellation."""
    return back(complement(double(as_float(self)), _terms(self)), self)


@lowering("aten::special_erfcx", "prims::erfcx")
def erfcx(self: ir.Value) -> RecordedValue:
    """exp(x^2) erfc(x), without overflow for large x."""
    return back(_erfcx(double(as_float(self)), _terms(self)), self)


def _erfcx(x: ir.Value, terms: int) -> RecordedValue:
    positive = _erfcx_positive(op.Abs(x), terms)
    doubled = op.Mul(number(2.0), op.Exp(op.Mul(x, x)))
    return op.Where(op.Less(x, number(0.0)), op.Sub(doubled, positive), positive)


@lowering("aten::special_ndtr", "prims::ndtr")
def ndtr(self: ir.Value) -> RecordedValue:
    """The normal distribution function."""
    if self.dtype == ir.DataType.DOUBLE:
        return op.Mul(number(0.5), complement(op.Mul(self, number(-math.sqrt(0.5))), _terms(self)))
    data = as_float(self)
    error = op.Erf(op.Mul(data, axes.like(math.sqrt(0.5), data)))
    return op.Mul(op.Add(error, axes.like(1.0, data)), axes.like(0.5, data))


@lowering("aten::special_log_ndtr")
def log_ndtr(self: ir.Value) -> RecordedValue:
    """The logarithm of the normal distribution function, exact far to the left as well."""
    x = double(as_float(self))
    is_low = op.Less(x, number(-1.0))
    root = op.Mul(x, number(-math.sqrt(0.5)))
    scaled = _erfcx_positive(op.Abs(root), _terms(self))
    square = op.Mul(root, root)
    left = op.Sub(op.Log(op.Div(scaled, number(2.0))), square)
    tail = op.Mul(op.Mul(op.Exp(op.Neg(square)), scaled), number(0.5))
    tail = op.Where(op.Greater(root, number(0.0)), op.Sub(number(1.0), tail), tail)
    return back(op.Where(is_low, left, log_one_plus(op.Neg(tail))), self)


def _inverse(x: ir.Value, is_precise: bool) -> RecordedValue:
    """The inverse of erf, of float64 numbers; -1 and 1 give infinities, beyond them NaN."""
    w = op.Neg(op.Log(op.Mul(op.Sub(number(1.0), x), op.Add(number(1.0), x))))
    centre = polynomial(_ERFINV_CENTRE, op.Sub(w, number(2.5)))
    tail = polynomial(_ERFINV_TAIL, op.Sub(op.Sqrt(w), number(3.0)))
    guess = op.Mul(x, op.Where(op.Less(w, number(5.0)), centre, tail))
    if is_precise:
        for _ in range(2):
            guess = _improved(guess, x)
    return op.Where(op.Equal(op.Abs(x), number(1.0)), op.Mul(x, number(float("inf"))), guess)


def _improved(guess: ir.Value, x: ir.Value) -> RecordedValue:
    """A step of Newton towards erf(guess) = x, by the complement where erf is close to 1."""
    size, target = op.Abs(guess), op.Abs(x)
    near = op.Sub(error_function(size), target)
    far = op.Sub(op.Sub(number(1.0), target), complement(size, _TERMS))
    rest = op.Where(op.Less(target, number(0.5)), near, far)
    slope = op.Mul(op.Exp(op.Neg(op.Mul(size, size))), number(2.0 / math.sqrt(math.pi)))
    better = op.Sub(size, op.Div(rest, slope))
    better = op.Where(op.Less(guess, number(0.0)), op.Neg(better), better)
    return op.Where(op.Greater(target, number(0.0)), better, guess)  # a zero keeps its sign


@lowering("aten::erfinv", "aten::special_erfinv", "prims::erf_inv")
def erfinv(self: ir.Value) -> RecordedValue:
    """The inverse of the error function on [-1, 1]."""
    return back(_inverse(double(as_float(self)), self.dtype == ir.DataType.DOUBLE), self)


@lowering("aten::special_ndtri", "prims::ndtri")
def ndtri(self: ir.Value) -> RecordedValue:
    """The quantile function of the normal distribution: sqrt(2) erfinv(2 p - 1), in its tails by the logarithm."""
    p, one, half = double(as_float(self)), number(1.0), number(0.5)
    centre = _inverse(op.Sub(op.Mul(p, number(2.0)), one), self.dtype == ir.DataType.DOUBLE)
    is_low = op.Less(p, half)
    near = op.Where(is_low, p, op.Sub(one, p))
    is_tail = op.And(op.Greater(near, number(0.0)), op.Less(near, number(0.1)))
    size = _of_logarithm(op.Add(op.Log(op.Where(is_tail, near, number(0.1))), number(math.log(2.0))), _terms(self))
    found = op.Where(is_tail, op.Where(is_low, op.Neg(size), size), centre)
    return back(op.Mul(found, number(math.sqrt(2.0))), self)


def _of_logarithm(logarithm: ir.Value, terms: int) -> RecordedValue:
    """Where erfc has this logarithm, -1.6 or less: from the leading term on, by steps of Newton towards it."""
    length = op.Neg(logarithm)
    found = op.Sqrt(op.Sub(length, op.Mul(op.Log(op.Mul(length, number(math.pi))), number(0.5))))
    for _ in range(4):
        scaled = _erfcx_positive(found, terms)
        beyond = op.Sub(op.Sub(op.Log(scaled), op.Mul(found, found)), logarithm)
        found = op.Add(found, op.Mul(beyond, op.Mul(scaled, number(math.sqrt(math.pi) / 2.0))))
    return found


@lowering("aten::gelu")
def gelu(self: ir.Value, approximate: str = "none") -> RecordedValue:
    """x times the normal distribution function of x, or its approximation by tanh."""
    if approximate != "tanh" and self.dtype == ir.DataType.DOUBLE:
        return op.Mul(self, ndtr(self))  # far below 0 the other form loses all digits
    half, one = axes.like(0.5, self), axes.like(1.0, self)
    if approximate == "tanh":
        inner = op.Add(self, op.Mul(axes.like(0.044715, self), op.Pow(self, axes.like(3.0, self))))
        curve = op.Tanh(op.Mul(axes.like(math.sqrt(2.0 / math.pi), self), inner))
    else:
        curve = error_function(op.Div(self, axes.like(math.sqrt(2.0), self)))
    return op.Mul(self, op.Mul(half, op.Add(curve, one)))  # the order that onnxruntime knows as one Gelu
