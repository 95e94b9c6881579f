"""Hurwitz' zeta function, the derivatives of digamma, and the incomplete gamma functions, in float64.

Sources: Abramowitz and Stegun 23.1.30 (the Euler-Maclaurin sum), 6.4.10 (polygamma as zeta), 6.4.7 (reflection), 6.5.29
and 6.5.31 (series and continued fraction); for parameters above a million, N. Temme's uniform expansion, whose first
two terms are exact to 1e-9 there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import loops
from batch_export.exporter.ops.elementwise import as_float
from batch_export.exporter.ops.error_function import back, complement, double, number, polynomial
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.special_functions import digamma, log_gamma

_LEAST, _MOST = 10, 100_000
"""Terms that are added before the tail is: at least so many, and more for negative arguments."""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_LARGE = 1e6
Number = ir.Value | float


def _most(value: ir.Value) -> RecordedValue:
    """The largest element as `float64[]`, 0 at least; NaN and infinities count as none."""
    known = op.Where(op.Or(op.IsNaN(value), op.IsInf(value)), number(0.0), value)
    return op.ReduceMax(op.Concat(op.Reshape(known, [-1]), op.Reshape(number(0.0), [1]), axis=0), keepdims=0)


def hurwitz(s: ir.Value, q: ir.Value) -> RecordedValue:
    """The sum of (q + k) ** -s over k >= 0, of float64 numbers s > 1."""
    needed = op.Add(op.Ceil(_most(op.Neg(q))), number(float(_LEAST)))
    times = op.Cast(op.Min(needed, number(float(_MOST))), to=ir.DataType.INT64)
    power = op.Neg(s)
    start = op.Expand(number(0.0), op.Shape(op.Add(s, q)))

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        return [op.Add(states[0], op.Pow(op.Add(q, op.Cast(index, to=ir.DataType.DOUBLE)), power))]

    (total,) = loops.count(times, step, [start])
    end = op.Add(q, op.Cast(times, to=ir.DataType.DOUBLE))
    last = op.Pow(end, power)
    tail = op.Add(op.Div(op.Mul(last, end), op.Sub(s, number(1.0))), op.Mul(last, number(0.5)))
    rising, inverse = op.Div(s, end), op.Reciprocal(op.Mul(end, end))
    for place, bernoulli in enumerate(_BERNOULLI, 1):
        tail = op.Add(tail, op.Mul(op.Mul(last, rising), number(bernoulli / math.factorial(2 * place))))
        above = op.Mul(op.Add(s, number(2.0 * place - 1.0)), op.Add(s, number(2.0 * place)))
        rising = op.Mul(rising, op.Mul(above, inverse))
    return op.Add(total, op.Where(op.Equal(last, number(0.0)), number(0.0), tail))


_LOST = 2.5242e13
"""From here on eager's series multiplies 0 by a product of 23 such numbers, which is infinite."""


@lowering("aten::special_zeta", "aten::special_zeta.other_scalar", "aten::special_zeta.self_scalar", "prims::zeta")
def special_zeta(self: Number, other: Number) -> RecordedValue:
    """Hurwitz' zeta function; infinite at its poles, NaN where it is not real."""
    like = self if isinstance(self, ir.Value) else other
    assert isinstance(like, ir.Value)
    s, q = (double(one) if isinstance(one, ir.Value) else number(float(one)) for one in (self, other))
    one, zero = number(1.0), number(0.0)
    is_low = op.LessOrEqual(q, zero)
    is_pole = op.And(is_low, op.Equal(q, op.Floor(q)))
    is_unreal = op.Or(op.Less(s, one), op.And(is_low, op.Not(op.Equal(s, op.Floor(s)))))
    found = op.Where(is_unreal, number(math.nan), hurwitz(s, q))
    is_lost = op.And(op.Greater(s, number(_LOST)), op.Greater(q, one))
    found = op.Where(is_lost, number(math.nan), found)
    found = op.Where(is_pole, op.Where(op.Less(s, one), number(math.nan), number(math.inf)), found)
    return back(op.Where(op.Equal(s, one), number(math.inf), found), like)


def _trigamma(x: ir.Value) -> RecordedValue:
    reflected = op.Less(x, number(0.5))
    mirrored = hurwitz(number(2.0), op.Where(reflected, op.Sub(number(1.0), x), x))
    sine = op.Sin(op.Mul(op.Sub(x, op.Round(x)), number(math.pi)))
    return op.Where(reflected, op.Sub(op.Div(number(math.pi**2), op.Mul(sine, sine)), mirrored), mirrored)


@lowering("aten::polygamma", "aten::special_polygamma")
def polygamma(n: int, self: ir.Value) -> RecordedValue:
    """The n-th derivative of digamma."""
    if n == 0:
        return digamma(self)
    x = double(as_float(self))
    if n == 1:
        return back(_trigamma(x), self)
    scale = math.factorial(n) if n <= 170 else math.inf
    is_pole = op.And(op.LessOrEqual(x, number(0.0)), op.Equal(x, op.Floor(x)))
    found = op.Where(is_pole, number(math.inf), hurwitz(number(n + 1.0), x))
    return back(op.Mul(found, number(float(scale if n % 2 else -scale))), self)


def _prefactor(a: ir.Value, x: ir.Value) -> RecordedValue:
    """x ** a * exp(-x) / gamma(a)."""
    logarithm = op.Sub(op.Sub(op.Mul(a, op.Log(x)), x), log_gamma(a))
    return op.Exp(logarithm)


def _lower_series(a: ir.Value, x: ir.Value, times: ir.Value) -> RecordedValue:
    """The lower function where x <= a + 1."""
    first = op.Reciprocal(a)
    shape = op.Shape(op.Add(a, x))

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        total, term = states
        made = op.Mul(term, op.Div(x, op.Add(a, op.Cast(op.Add(index, 1), to=ir.DataType.DOUBLE))))
        return [op.Add(total, made), made]

    total, _ = loops.count(times, step, [op.Expand(first, shape), op.Expand(first, shape)])
    return op.Mul(total, _prefactor(a, x))


def _upper_fraction(a: ir.Value, x: ir.Value, times: ir.Value) -> RecordedValue:
    """The upper function where x > a + 1, by Lentz' rule."""
    tiny, one, two = number(1e-30), number(1.0), number(2.0)
    shape = op.Shape(op.Add(a, x))
    b = op.Sub(op.Add(x, one), a)
    d = op.Expand(op.Reciprocal(b), shape)

    def kept(value: RecordedValue) -> RecordedValue:
        return op.Where(op.Less(op.Abs(value), tiny), tiny, value)

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        result, c, d = states
        place = op.Cast(op.Add(index, 1), to=ir.DataType.DOUBLE)
        factor = op.Mul(place, op.Sub(a, place))
        below = op.Add(b, op.Mul(two, place))
        d = op.Reciprocal(kept(op.Add(op.Mul(factor, d), below)))
        c = kept(op.Add(below, op.Div(factor, c)))
        return [op.Mul(result, op.Mul(c, d)), c, d]

    result, _, _ = loops.count(times, step, [d, op.Expand(number(1e30), shape), d])
    return op.Mul(result, _prefactor(a, x))


def _upper_of_large(a: ir.Value, x: ir.Value) -> RecordedValue:
    from_one = op.Div(op.Sub(x, a), a)
    ratio = op.Add(from_one, number(1.0))
    is_near = op.Less(op.Abs(from_one), number(1e-3))
    near = op.Mul(op.Mul(from_one, from_one), polynomial((1 / 3, -2 / 5, 1 / 2, -2 / 3, 1.0), from_one))
    far = op.Mul(number(2.0), op.Sub(from_one, op.Log(ratio)))
    square = op.Where(is_near, near, far)
    eta = op.Mul(op.Sign(from_one), op.Sqrt(square))
    series = polynomial((-2 / 135, 1 / 12, -1 / 3), eta)
    safe = op.Where(is_near, number(1.0), from_one)
    correction = op.Where(
        is_near, series, op.Sub(op.Reciprocal(safe), op.Reciprocal(op.Where(is_near, number(1.0), eta)))
    )
    weight = op.Div(op.Exp(op.Mul(op.Mul(a, square), number(-0.5))), op.Sqrt(op.Mul(a, number(2.0 * math.pi))))
    tail = op.Mul(number(0.5), complement(op.Mul(eta, op.Sqrt(op.Mul(a, number(0.5))))))
    return op.Add(tail, op.Mul(weight, correction))


def _incomplete(a: ir.Value, x: ir.Value, *, upper: bool) -> RecordedValue:
    zero, one = number(0.0), number(1.0)
    is_proper = op.And(op.Greater(a, zero), op.Greater(x, zero))
    is_proper = op.And(is_proper, op.Not(op.Or(op.IsInf(a), op.IsInf(x))))
    is_large = op.Greater(a, number(_LARGE))
    of, at = op.Where(is_proper, a, one), op.Where(is_proper, x, one)
    small = op.Where(is_large, one, of)
    beside = op.Where(is_large, one, at)
    reach = op.Add(op.Mul(op.Sqrt(_most(small)), number(12.0)), number(120.0))
    times = op.Cast(reach, to=ir.DataType.INT64)
    by_series = op.LessOrEqual(beside, op.Add(small, one))
    lower = _lower_series(small, op.Where(by_series, beside, small), times)
    above = _upper_fraction(small, op.Where(by_series, op.Add(small, number(2.0)), beside), times)
    found = op.Where(by_series, op.Sub(one, lower) if upper else lower, above if upper else op.Sub(one, above))
    far = _upper_of_large(op.Where(is_large, of, number(_LARGE)), op.Where(is_large, at, number(_LARGE)))
    found = op.Where(is_large, far if upper else op.Sub(one, far), found)
    both = op.Or(op.And(op.Equal(a, zero), op.Equal(x, zero)), op.And(op.IsInf(a), op.IsInf(x)))
    is_whole = op.Or(op.And(op.Equal(a, zero), op.Greater(x, zero)), op.And(op.IsInf(x), op.Not(op.IsInf(a))))
    is_none = op.And(op.Equal(x, zero), op.Not(op.Equal(a, zero)))
    is_none = op.Or(is_none, op.And(op.IsInf(a), op.Not(op.IsInf(x))))
    found = op.Where(op.Or(op.IsNaN(a), op.IsNaN(x)), number(math.nan), found)
    ends = (zero, one) if upper else (one, zero)
    found = op.Where(is_whole, ends[0], op.Where(is_none, ends[1], found))
    is_outside = op.Or(op.Less(a, zero), op.Less(x, zero))
    return op.Where(op.Or(both, is_outside), number(math.nan), found)


@lowering("aten::igamma", "aten::special_gammainc", "prims::igamma")
def igamma(self: ir.Value, other: ir.Value) -> RecordedValue:
    """The lower incomplete gamma function, divided by gamma."""
    return back(_incomplete(double(self), double(other), upper=False), self)


@lowering("aten::igammac", "aten::special_gammaincc", "prims::igammac")
def igammac(self: ir.Value, other: ir.Value) -> RecordedValue:
    """The upper incomplete gamma function, divided by gamma."""
    return back(_incomplete(double(self), double(other), upper=True), self)
