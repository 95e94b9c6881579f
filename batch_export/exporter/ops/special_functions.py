"""Special functions as series and rational approximations, in float32 accuracy (about 1e-6 relative).

Sources: erfinv: M. Giles, Approximating the erfinv function (2010); lgamma: C. Lanczos'
approximation with g = 7 and nine terms (P. Godfrey's coefficients); digamma: recurrence to x >= 6 and the asymptotic
series of Abramowitz and Stegun 6.3.18, reflection 6.3.7. Computed in float64, since intermediate terms cancel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from batch_export.exporter.operators import op
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.elementwise import as_float
from batch_export.exporter.ops.marking import lowering

_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)
_ERFINV_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def _number(value: float) -> Any:
    return op.Constant(value=ir.tensor(value, dtype=ir.DataType.DOUBLE))


def _double(self: ir.Value) -> Any:
    return axes.shaped(op.Cast(self, to=ir.DataType.DOUBLE), self.shape)


def _back(result: Any, self: ir.Value) -> Any:
    return op.CastLike(result, self) if axes.is_float(self) else op.Cast(result, to=ir.DataType.FLOAT)


def _polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """Horner's rule, highest power first."""
    total: Any = _number(coefficients[0])
    for coefficient in coefficients[1:]:
        total = op.Add(op.Mul(total, x), _number(coefficient))
    return total


def _log_gamma(x: Any) -> Any:
    """log |gamma(x)| of doubles, by reflection below one half."""
    reflected = op.Less(x, _number(0.5))
    z = op.Sub(op.Where(reflected, op.Sub(_number(1.0), x), x), _number(1.0))
    series: Any = _number(_LANCZOS[0])
    for index, coefficient in enumerate(_LANCZOS[1:], 1):
        series = op.Add(series, op.Div(_number(coefficient), op.Add(z, _number(float(index)))))
    t = op.Add(z, _number(7.5))
    value = op.Add(op.Sub(op.Mul(op.Add(z, _number(0.5)), op.Log(t)), t), op.Log(series))
    value = op.Add(value, _number(0.5 * math.log(2 * math.pi)))
    distance = op.Abs(op.Sub(x, op.Round(x)))
    mirror = op.Sub(op.Sub(_number(math.log(math.pi)), op.Log(op.Sin(op.Mul(distance, _number(math.pi))))), value)
    result = op.Where(reflected, mirror, value)
    return op.Where(op.IsInf(x), _number(float("inf")), result)


@lowering("aten::lgamma", "prims::lgamma")
def lgamma(self: ir.Value) -> Any:
    """The logarithm of |gamma|; infinite at 0, -1, -2, ..."""
    return _back(_log_gamma(_double(self)), self)


def _digamma(x: Any) -> Any:
    reflected = op.Less(x, _number(0.5))
    z = op.Where(reflected, op.Sub(_number(1.0), x), x)
    total: Any = _number(0.0)
    for _ in range(6):
        small = op.Less(z, _number(6.0))
        total = op.Where(small, op.Sub(total, op.Reciprocal(z)), total)
        z = op.Where(small, op.Add(z, _number(1.0)), z)
    inverse = op.Reciprocal(op.Mul(z, z))
    series = op.Mul(inverse, _polynomial((-1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12), inverse))
    value = op.Add(op.Add(total, op.Sub(op.Log(z), op.Div(_number(0.5), z))), series)
    angle = op.Mul(op.Sub(x, op.Round(x)), _number(math.pi))
    cotangent = op.Div(op.Cos(angle), op.Sin(angle))
    return op.Where(reflected, op.Sub(value, op.Mul(_number(math.pi), cotangent)), value)


@lowering("aten::digamma", "prims::digamma")
def digamma(self: ir.Value) -> Any:
    """The derivative of log gamma; NaN at negative integers, infinite at 0 with the opposite of its sign."""
    x = _double(self)
    result = _digamma(x)
    is_pole = op.And(op.Equal(x, op.Floor(x)), op.Less(x, _number(0.0)))
    result = op.Where(is_pole, _number(float("nan")), result)
    at_zero = op.Neg(op.Reciprocal(x))
    result = op.Where(op.Equal(x, _number(0.0)), at_zero, result)
    low = op.And(op.IsInf(x), op.Less(x, _number(0.0)))
    return _back(op.Where(low, _number(float("nan")), op.Where(op.IsInf(x), x, result)), self)


def _inverse_error_function(x: Any) -> Any:
    """Of doubles; -1 and 1 give infinities, beyond them NaN."""
    w = op.Neg(op.Log(op.Mul(op.Sub(_number(1.0), x), op.Add(_number(1.0), x))))
    centre = _polynomial(_ERFINV_CENTRE, op.Sub(w, _number(2.5)))
    tail = _polynomial(_ERFINV_TAIL, op.Sub(op.Sqrt(w), _number(3.0)))
    guess = op.Mul(x, op.Where(op.Less(w, _number(5.0)), centre, tail))
    edge = op.Equal(op.Abs(x), _number(1.0))
    return op.Where(edge, op.Mul(x, _number(float("inf"))), guess)


@lowering("aten::erfinv", "prims::erf_inv")
def erfinv(self: ir.Value) -> Any:
    """The inverse of the error function on [-1, 1]."""
    return _back(_inverse_error_function(_double(self)), self)


@lowering("aten::special_ndtri", "prims::ndtri")
def ndtri(self: ir.Value) -> Any:
    """The quantile function of the normal distribution: sqrt(2) erfinv(2 p - 1)."""
    p = _double(self)
    doubled = op.Sub(op.Mul(p, _number(2.0)), _number(1.0))
    return _back(op.Mul(_inverse_error_function(doubled), _number(math.sqrt(2.0))), self)


def _scaled_complement(x: Any) -> Any:
    """exp(x^2) erfc(x) by the continued fraction of Laplace, 60 terms: for x > 1."""
    fraction: Any = x
    for index in range(60, 0, -1):
        fraction = op.Add(x, op.Div(_number(index / 2.0), fraction))
    return op.Div(_number(1.0 / math.sqrt(math.pi)), fraction)


def _erfcx(x: Any) -> Any:
    size = op.Abs(x)
    far = op.Greater(size, _number(1.0))
    narrow = op.Cast(op.Erf(op.Cast(size, to=ir.DataType.FLOAT)), to=ir.DataType.DOUBLE)
    square = op.Exp(op.Mul(x, x))
    near = op.Mul(square, op.Sub(_number(1.0), narrow))
    positive = op.Where(far, _scaled_complement(op.Where(far, size, _number(2.0))), near)
    return op.Where(op.Less(x, _number(0.0)), op.Sub(op.Mul(_number(2.0), square), positive), positive)


@lowering("aten::special_erfcx")
def erfcx(self: ir.Value) -> Any:
    """exp(x^2) erfc(x), without overflow for large x."""
    return _back(_erfcx(_double(self)), self)


@lowering("aten::special_log_ndtr")
def log_ndtr(self: ir.Value) -> Any:
    """The logarithm of the normal distribution function, exact far to the left as well."""
    x = _double(self)
    low = op.Less(x, _number(-1.0))
    root = op.Mul(x, _number(math.sqrt(0.5)))
    scaled = _erfcx(op.Where(low, op.Neg(root), _number(1.0)))
    left = op.Sub(op.Log(op.Div(scaled, _number(2.0))), op.Mul(root, root))
    error = op.Cast(op.Erf(op.Cast(root, to=ir.DataType.FLOAT)), to=ir.DataType.DOUBLE)
    tail = op.Mul(_erfcx(op.Where(low, _number(1.0), op.Max(root, _number(0.0)))), op.Exp(op.Neg(op.Mul(root, root))))
    right = op.Where(
        op.Greater(x, _number(0.0)),
        op.Log(op.Sub(_number(1.0), op.Div(tail, _number(2.0)))),
        op.Log(op.Div(op.Add(_number(1.0), error), _number(2.0))),
    )
    return _back(op.Where(low, left, right), self)


@lowering("aten::special_bessel_j0", "prims::bessel_j0")
def bessel_j0(self: ir.Value) -> Any:
    """The Bessel function J0, as the mean of cos(x sin t) over 128 equal steps.

    The mean over N steps differs from the integral by terms J_{2N}(x), which vanish for |x| < 200 (Abramowitz and
    Stegun 9.1.18).
    """
    return _bessel(self, 0)


@lowering("aten::special_bessel_j1", "prims::bessel_j1")
def bessel_j1(self: ir.Value) -> Any:
    """The Bessel function J1, as the mean of cos(t - x sin t)."""
    return _bessel(self, 1)


def _mean(samples: Any, self: ir.Value) -> Any:
    """The mean over the last axis, counted from the front: onnxruntime leaves empty tensors unreduced otherwise."""
    return op.ReduceMean(samples, [axes.rank(self)], keepdims=0)


def _bessel(self: ir.Value, order: int) -> Any:
    x = op.Unsqueeze(_double(as_float(self)), [-1])
    steps = [math.pi * (index + 0.5) / 128 for index in range(128)]
    sines = op.Constant(value=ir.tensor([math.sin(step) for step in steps], dtype=ir.DataType.DOUBLE))
    shift = op.Constant(value=ir.tensor([order * step for step in steps], dtype=ir.DataType.DOUBLE))
    return _back(_mean(op.Cos(op.Sub(shift, op.Mul(x, sines))), self), self)


def _modified(self: ir.Value, order: int, scaled: bool) -> Any:
    """I0 and I1 as means of exp(x cos t) cos(n t) (Abramowitz, Stegun 9.6.19), exp(-|x|) taken inside."""
    x = op.Unsqueeze(_double(as_float(self)), [-1])
    steps = [math.pi * (index + 0.5) / 256 for index in range(256)]
    cosines = op.Constant(value=ir.tensor([math.cos(step) for step in steps], dtype=ir.DataType.DOUBLE))
    weights = op.Constant(value=ir.tensor([math.cos(order * step) for step in steps], dtype=ir.DataType.DOUBLE))
    inside = op.Exp(op.Sub(op.Mul(x, cosines), op.Abs(x)))
    mean = _mean(op.Mul(inside, weights), self)
    if scaled:
        return _back(mean, self)
    return _back(op.Mul(mean, op.Exp(op.Abs(_double(self)))), self)


@lowering("aten::i0", "aten::special_i0", "prims::bessel_i0", "aten::special_modified_bessel_i0")
def i0(self: ir.Value) -> Any:
    """The modified Bessel function I0."""
    return _modified(self, 0, scaled=False)


@lowering("aten::special_i0e", "prims::bessel_i0e")
def i0e(self: ir.Value) -> Any:
    """exp(-|x|) I0(x)."""
    return _modified(self, 0, scaled=True)


@lowering("aten::special_i1", "prims::bessel_i1", "aten::special_modified_bessel_i1")
def i1(self: ir.Value) -> Any:
    """The modified Bessel function I1."""
    return _modified(self, 1, scaled=False)


@lowering("aten::special_i1e", "prims::bessel_i1e")
def i1e(self: ir.Value) -> Any:
    """exp(-|x|) I1(x)."""
    return _modified(self, 1, scaled=True)


@lowering("aten::special_spherical_bessel_j0", "prims::spherical_bessel_j0")
def spherical_j0(self: ir.Value) -> Any:
    """sin(x) / x, 1 at 0."""
    x = _double(self)
    is_zero = op.Equal(x, _number(0.0))
    safe = op.Where(is_zero, _number(1.0), x)
    return _back(op.Where(is_zero, _number(1.0), op.Div(op.Sin(safe), safe)), self)
