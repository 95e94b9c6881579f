"""The Bessel functions J, Y and K of orders 0 and 1: power series for small arguments, Hankel's expansion for large.

Sources: Abramowitz and Stegun 9.1.10 to 9.1.13, 9.6.10 to 9.6.13 (series), 9.2.5 to 9.2.10, 9.7.2 (expansions).
Computed in float64, since terms on the way cancel: at the borders about seven digits of sixteen are lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops.elementwise import as_float
from batch_export.exporter.ops.error_function import back, double, number
from batch_export.exporter.ops.marking import lowering

_FAR, _FAR_MODIFIED = 16.0, 10.0
"""Where the expansions of J and Y, and of K, take over."""
_TERMS, _FAR_TERMS = 40, 20
_GAMMA = 0.57721566490153286061


def series(coefficients: Sequence[float], of: RecordedValue) -> RecordedValue:
    """The sum of `coefficients[k] * of ** k`, in a few nodes however many there are."""
    powers = op.Pow(op.Unsqueeze(of, [-1]), _numbers([float(power) for power in range(len(coefficients))]))
    return op.Squeeze(op.MatMul(powers, op.Unsqueeze(_numbers(coefficients), [1])), [-1])


def _numbers(values: Sequence[float]) -> RecordedValue:
    return op.Constant(value=ir.tensor(list(values), dtype=ir.DataType.DOUBLE))


def _harmonic(count: int) -> float:
    return sum(1.0 / index for index in range(1, count + 1))


def _first_kind(x: RecordedValue, order: int, sign: float) -> RecordedValue:
    """J (sign -1) or I (sign 1) of a small argument."""
    half = op.Mul(x, number(0.5))
    terms = [sign**k / (math.factorial(k) * math.factorial(k + order)) for k in range(_TERMS)]
    total = series(terms, op.Mul(half, half))
    return op.Mul(half, total) if order else total


def _second_kind(x: RecordedValue, order: int, sign: float) -> RecordedValue:
    """pi / 2 times Y (sign -1), or K (sign 1) but for the sign of order 0, of a small argument."""
    half = op.Mul(x, number(0.5))
    square = op.Mul(half, half)
    growing = op.Mul(op.Log(half), _first_kind(x, order, sign))
    if not order:
        weights = [sign**k * (_GAMMA - _harmonic(k)) / math.factorial(k) ** 2 for k in range(_TERMS)]
        return op.Add(growing, series(weights, square))
    weights = [
        sign**k * (_harmonic(k) + _harmonic(k + 1) - 2.0 * _GAMMA) / (math.factorial(k) * math.factorial(k + 1))
        for k in range(_TERMS)
    ]
    rest = op.Sub(growing, op.Mul(op.Mul(half, number(0.5)), series(weights, square)))
    return op.Add(rest, op.Div(number(sign), x))


def _hankel(order: int) -> list[float]:
    terms = [1.0]
    for k in range(1, _FAR_TERMS):
        terms.append(terms[-1] * (4.0 * order**2 - (2 * k - 1) ** 2) / (8.0 * k))
    return terms


def _waves(x: RecordedValue, order: int) -> tuple[RecordedValue, RecordedValue]:
    """J and Y of a large argument."""
    terms = _hankel(order)
    inverse = op.Reciprocal(x)
    square = op.Mul(inverse, inverse)
    even = series([(-1.0) ** k * term for k, term in enumerate(terms[::2])], square)
    odd = op.Mul(inverse, series([(-1.0) ** k * term for k, term in enumerate(terms[1::2])], square))
    total, difference = op.Add(op.Sin(x), op.Cos(x)), op.Sub(op.Sin(x), op.Cos(x))
    cosine, sine = (difference, op.Neg(total)) if order else (total, difference)
    scale = op.Sqrt(op.Mul(inverse, number(1.0 / math.pi)))
    first = op.Sub(op.Mul(even, cosine), op.Mul(odd, sine))
    second = op.Add(op.Mul(even, sine), op.Mul(odd, cosine))
    return op.Mul(scale, first), op.Mul(scale, second)


def _first(self: ir.Value, order: int) -> RecordedValue:
    x = double(as_float(self))
    size = op.Abs(x)
    far, _ = _waves(op.Max(size, number(_FAR)), order)
    near = _first_kind(op.Min(size, number(_FAR)), order, -1.0)
    result = op.Where(op.Greater(size, number(_FAR)), far, near)
    return back(op.Where(op.Less(x, number(0.0)), op.Neg(result), result) if order else result, self)


def _second(self: ir.Value, order: int) -> RecordedValue:
    x = double(as_float(self))
    _, far = _waves(op.Max(x, number(_FAR)), order)
    near = op.Mul(_second_kind(op.Min(x, number(_FAR)), order, -1.0), number(2.0 / math.pi))
    result = op.Where(op.Greater(x, number(_FAR)), far, near)
    return back(op.Where(op.Equal(x, number(0.0)), number(-math.inf), result), self)


def _modified_second(self: ir.Value, order: int, scaled: bool) -> RecordedValue:
    x = double(as_float(self))
    small, large = op.Min(x, number(_FAR_MODIFIED)), op.Max(x, number(_FAR_MODIFIED))
    near = _second_kind(small, order, 1.0)
    near = near if order else op.Neg(near)
    inverse = op.Reciprocal(large)
    far = op.Mul(op.Sqrt(op.Mul(inverse, number(math.pi / 2.0))), series(_hankel(order), inverse))
    if scaled:
        near = op.Mul(near, op.Exp(small))
    else:
        far = op.Mul(far, op.Exp(op.Neg(large)))
    result = op.Where(op.Greater(x, number(_FAR_MODIFIED)), far, near)
    return back(op.Where(op.Equal(x, number(0.0)), number(math.inf), result), self)


@lowering("aten::special_bessel_j0", "prims::bessel_j0")
def bessel_j0(self: ir.Value) -> RecordedValue:
    """The Bessel function J0."""
    return _first(self, 0)


@lowering("aten::special_bessel_j1", "prims::bessel_j1")
def bessel_j1(self: ir.Value) -> RecordedValue:
    """The Bessel function J1."""
    return _first(self, 1)


@lowering("aten::special_bessel_y0")
def bessel_y0(self: ir.Value) -> RecordedValue:
    """The Bessel function Y0; NaN below 0."""
    return _second(self, 0)


@lowering("aten::special_bessel_y1")
def bessel_y1(self: ir.Value) -> RecordedValue:
    """The Bessel function Y1; NaN below 0."""
    return _second(self, 1)


@lowering("aten::special_modified_bessel_k0")
def modified_k0(self: ir.Value) -> RecordedValue:
    """The modified Bessel function K0; NaN below 0."""
    return _modified_second(self, 0, scaled=False)


@lowering("aten::special_modified_bessel_k1")
def modified_k1(self: ir.Value) -> RecordedValue:
    """The modified Bessel function K1; NaN below 0."""
    return _modified_second(self, 1, scaled=False)


@lowering("aten::special_scaled_modified_bessel_k0")
def scaled_k0(self: ir.Value) -> RecordedValue:
    """exp(x) K0(x)."""
    return _modified_second(self, 0, scaled=True)


@lowering("aten::special_scaled_modified_bessel_k1")
def scaled_k1(self: ir.Value) -> RecordedValue:
    """exp(x) K1(x)."""
    return _modified_second(self, 1, scaled=True)
