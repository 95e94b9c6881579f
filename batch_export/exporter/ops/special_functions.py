"""The gamma functions and the modified Bessel functions I as series and means, to about 1e-6 of each value.

Sources: lgamma: C. Lanczos' approximation with g = 7 and nine terms (P. Godfrey's coefficients); digamma: recurrence to
x >= 6 and the asymptotic series of Abramowitz and Stegun 6.3.18, reflection 6.3.7. Computed in float64, since terms
on the way cancel.
"""

from __future__ import annotations

import math

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.elementwise import as_float
from batch_export.exporter.ops.error_function import back, double, number, polynomial
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
_SINE_IS_ANGLE = 1e-9
"""Below it an angle is its own sine, to all digits of float64."""


def log_gamma(x: ir.Value) -> RecordedValue:
    """log |gamma(x)| of doubles, by reflection below one half."""
    reflected = op.Less(x, number(0.5))
    z = op.Sub(op.Where(reflected, op.Sub(number(1.0), x), x), number(1.0))
    series: RecordedValue = number(_LANCZOS[0])
    for index, coefficient in enumerate(_LANCZOS[1:], 1):
        series = op.Add(series, op.Div(number(coefficient), op.Add(z, number(float(index)))))
    t = op.Add(z, number(7.5))
    value = op.Add(op.Sub(op.Mul(op.Add(z, number(0.5)), op.Log(t)), t), op.Log(series))
    value = op.Add(value, number(0.5 * math.log(2 * math.pi)))
    distance = op.Abs(op.Sub(x, op.Round(x)))
    sine = op.Div(op.Sin(op.Mul(distance, number(math.pi))), number(math.pi))
    sine = op.Where(op.Less(distance, number(_SINE_IS_ANGLE)), distance, sine)  # subnormals times pi are rounded
    mirror = op.Where(op.Equal(distance, number(0.0)), number(math.inf), op.Neg(op.Add(op.Log(sine), value)))
    result = op.Where(reflected, mirror, value)
    return op.Where(op.IsInf(x), number(float("inf")), result)


@lowering("aten::lgamma", "prims::lgamma")
def lgamma(self: ir.Value) -> RecordedValue:
    """The logarithm of |gamma|; infinite at 0, -1, -2, ..."""
    return back(log_gamma(double(self)), self)


def _digamma(x: ir.Value) -> RecordedValue:
    reflected = op.Less(x, number(0.5))
    z = op.Where(reflected, op.Sub(number(1.0), x), x)
    total: RecordedValue = number(0.0)
    for _ in range(6):
        small = op.Less(z, number(6.0))
        total = op.Where(small, op.Sub(total, op.Reciprocal(z)), total)
        z = op.Where(small, op.Add(z, number(1.0)), z)
    inverse = op.Reciprocal(op.Mul(z, z))
    series = op.Mul(inverse, polynomial((-1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12), inverse))
    value = op.Add(op.Add(total, op.Sub(op.Log(z), op.Div(number(0.5), z))), series)
    angle = op.Mul(op.Sub(x, op.Round(x)), number(math.pi))
    cotangent = op.Div(op.Cos(angle), op.Sin(angle))
    return op.Where(reflected, op.Sub(value, op.Mul(number(math.pi), cotangent)), value)


@lowering("aten::digamma", "prims::digamma")
def digamma(self: ir.Value) -> RecordedValue:
    """The derivative of log gamma; NaN at negative integers, infinite at 0 with the opposite of its sign."""
    x = double(self)
    result = _digamma(x)
    is_pole = op.And(op.Equal(x, op.Floor(x)), op.Less(x, number(0.0)))
    result = op.Where(is_pole, number(float("nan")), result)
    at_zero = op.Neg(op.Reciprocal(x))
    result = op.Where(op.Equal(x, number(0.0)), at_zero, result)
    low = op.And(op.IsInf(x), op.Less(x, number(0.0)))
    return back(op.Where(low, number(float("nan")), op.Where(op.IsInf(x), x, result)), self)


def _mean(samples: RecordedValue, self: ir.Value) -> RecordedValue:
    """The mean over the last axis, counted from the front: onnxruntime leaves empty tensors unreduced otherwise."""
    return op.ReduceMean(samples, [axes.rank(self)], keepdims=0)


def _near_first(x: ir.Value) -> RecordedValue:
    """I1 for |x| <= 1 (Abramowitz, Stegun 9.6.10), where a mean's terms cancel."""
    coefficients = [1.0 / (math.factorial(index) * math.factorial(index + 1)) for index in range(10)]
    half = op.Mul(x, number(0.5))
    return op.Mul(half, polynomial(tuple(reversed(coefficients)), op.Mul(half, half)))


_FAR = 64.0
"""Where the asymptotic series of I0 and I1 takes over from the mean: twelve of its terms are exact there."""


def _far_modified(size: ir.Value, order: int) -> RecordedValue:
    """exp(-x) times I0 or I1 for large x (Abramowitz, Stegun 9.7.1)."""
    term, series = 1.0, [1.0]
    for index in range(1, 13):
        term *= -(4.0 * order**2 - (2 * index - 1) ** 2) / (8.0 * index)
        series.append(term)
    total = polynomial(tuple(reversed(series)), op.Reciprocal(size))
    return op.Div(total, op.Sqrt(op.Mul(size, number(2.0 * math.pi))))


def _modified(self: ir.Value, order: int, scaled: bool) -> RecordedValue:
    """I0 and I1 as means of exp(x cos t) cos(n t) (Abramowitz, Stegun 9.6.19), exp(-|x|) taken inside."""
    whole = double(as_float(self))
    size = op.Abs(whole)
    is_far = op.Greater(size, number(_FAR))
    x = op.Unsqueeze(op.Where(is_far, number(_FAR), whole), [-1])
    steps = [math.pi * (index + 0.5) / 256 for index in range(256)]
    cosines = op.Constant(value=ir.tensor([math.cos(step) for step in steps], dtype=ir.DataType.DOUBLE))
    weights = op.Constant(value=ir.tensor([math.cos(order * step) for step in steps], dtype=ir.DataType.DOUBLE))
    inside = op.Exp(op.Sub(op.Mul(x, cosines), op.Abs(x)))
    far = _far_modified(size, order)
    far = op.Where(op.Less(whole, number(0.0)), op.Neg(far), far) if order else far
    result = op.Where(is_far, far, _mean(op.Mul(inside, weights), self))
    if order:
        near = op.Mul(_near_first(whole), op.Exp(op.Neg(size)))
        result = op.Where(op.LessOrEqual(size, number(1.0)), near, result)
    if not scaled:
        grown = op.Mul(result, op.Exp(size))
        if self.dtype != ir.DataType.DOUBLE:  # torch's own factor exp(|x|) overflows before the product does
            large = op.Greater(size, number(math.log(float(ir.DataType.FLOAT.max))))
            grown = op.Where(large, op.Mul(grown, number(math.inf)), grown)
        result = op.Where(op.IsInf(whole), number(math.nan), grown)  # as torch has it
    return back(result, self)


@lowering("aten::i0", "aten::special_i0", "prims::bessel_i0", "aten::special_modified_bessel_i0")
def i0(self: ir.Value) -> RecordedValue:
    """The modified Bessel function I0."""
    return _modified(self, 0, scaled=False)


@lowering("aten::special_i0e", "prims::bessel_i0e")
def i0e(self: ir.Value) -> RecordedValue:
    """exp(-|x|) I0(x)."""
    return _modified(self, 0, scaled=True)


@lowering("aten::special_i1", "prims::bessel_i1", "aten::special_modified_bessel_i1")
def i1(self: ir.Value) -> RecordedValue:
    """The modified Bessel function I1."""
    return _modified(self, 1, scaled=False)


@lowering("aten::special_i1e", "prims::bessel_i1e")
def i1e(self: ir.Value) -> RecordedValue:
    """exp(-|x|) I1(x)."""
    return _modified(self, 1, scaled=True)


@lowering("aten::special_spherical_bessel_j0", "prims::spherical_bessel_j0")
def spherical_j0(self: ir.Value) -> RecordedValue:
    """sin(x) / x, 1 at 0, 0 at infinity."""
    x = double(self)
    is_zero = op.Equal(x, number(0.0))
    safe = op.Where(is_zero, number(1.0), x)
    result = op.Where(op.IsInf(x), number(0.0), op.Div(op.Sin(safe), safe))
    return back(op.Where(is_zero, number(1.0), result), self)
