"""Orthogonal polynomials of a degree that may differ in each element, by their recurrences in float64.

Sources: Abramowitz and Stegun 22.7 (recurrences) and 22.4 (first two polynomials). The recurrence runs in a Loop up to
the largest degree; an element keeps the value at its own. Degrees are cut to whole numbers, and below 0 the value is 0,
as eager has it; NaN gives NaN, where eager gives finite numbers for some. Accuracy: that of the recurrence in
float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import loops
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.marking import lowering

Number = ir.Value | float
_Step = Callable[[RecordedValue, ir.Value, ir.Value, RecordedValue], RecordedValue]
"""From (x, the last polynomial, the one before it, its degree) to the next polynomial."""
_LARGEST = {ir.DataType.FLOAT: 128, ir.DataType.DOUBLE: 512}
"""Degrees above which eager gives NaN for Hermite's polynomials, which are too large for the dtype."""


def _result_dtype(x: Number, degree: Number) -> ir.DataType:
    doubles = any(isinstance(one, ir.Value) and one.dtype == ir.DataType.DOUBLE for one in (x, degree))
    return ir.DataType.DOUBLE if doubles else ir.DataType.FLOAT


def _double(value: Number) -> RecordedValue:
    return op.Cast(value, to=ir.DataType.DOUBLE) if isinstance(value, ir.Value) else number(float(value))


def _by_recurrence(
    x: Number,
    degree: Number,
    second: Callable[[RecordedValue], RecordedValue],
    step: _Step,
    *,
    is_hermite: bool = False,
) -> RecordedValue:
    """The polynomial of each element's degree; the first one is 1, and `second` gives the next."""
    dtype = _result_dtype(x, degree)
    whole = op.Cast(op.Cast(_double(degree), to=ir.DataType.INT64), to=ir.DataType.DOUBLE)
    shape = op.Shape(op.Add(_double(x), whole))
    value, degrees = op.Expand(_double(x), shape), op.Expand(whole, shape)
    first, following = op.Expand(number(1.0), shape), second(value)
    found = op.Where(op.Equal(degrees, number(1.0)), following, number(0.0))
    found = op.Where(op.Equal(degrees, number(0.0)), first, found)
    most = op.ReduceMax(op.Concat(op.Reshape(degrees, [-1]), [1.0], axis=0), keepdims=False)
    times = op.Cast(op.Sub(most, number(1.0)), to=ir.DataType.INT64)
    if is_hermite:
        times = op.Min(times, _LARGEST[dtype])

    def next_one(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[ir.Value]:
        before, last, kept = states
        current = op.Add(op.Cast(index, to=ir.DataType.DOUBLE), number(1.0))
        made = step(value, last, before, current)
        return [last, made, op.Where(op.Equal(degrees, op.Add(current, number(1.0))), made, kept)]

    result = loops.count(times, next_one, [first, following, found])[2]
    if is_hermite:
        result = op.Where(op.Greater(degrees, number(float(_LARGEST[dtype]))), number(float("nan")), result)
    return op.Cast(result, to=dtype)


def _twice(x: RecordedValue) -> RecordedValue:
    return op.Add(x, x)


def _shifted(x: RecordedValue) -> RecordedValue:
    return op.Sub(_twice(x), number(1.0))


def _chebyshev(x: RecordedValue, last: ir.Value, before: ir.Value, degree: RecordedValue) -> RecordedValue:
    del degree
    return op.Sub(op.Mul(_twice(x), last), before)


def _shifted_chebyshev(x: RecordedValue, last: ir.Value, before: ir.Value, degree: RecordedValue) -> RecordedValue:
    return _chebyshev(_shifted(x), last, before, degree)


def _hermite(x: RecordedValue, last: ir.Value, before: ir.Value, degree: RecordedValue) -> RecordedValue:
    return op.Sub(op.Mul(_twice(x), last), op.Mul(_twice(degree), before))


def _hermite_e(x: RecordedValue, last: ir.Value, before: ir.Value, degree: RecordedValue) -> RecordedValue:
    return op.Sub(op.Mul(x, last), op.Mul(degree, before))


def _laguerre(x: RecordedValue, last: ir.Value, before: ir.Value, degree: RecordedValue) -> RecordedValue:
    above = op.Add(degree, number(1.0))
    factor = op.Sub(op.Add(degree, above), x)
    return op.Div(op.Sub(op.Mul(factor, last), op.Mul(degree, before)), above)


def _legendre(x: RecordedValue, last: ir.Value, before: ir.Value, degree: RecordedValue) -> RecordedValue:
    above = op.Add(degree, number(1.0))
    factor = op.Mul(op.Add(degree, above), x)
    return op.Div(op.Sub(op.Mul(factor, last), op.Mul(degree, before)), above)


@lowering(
    "aten::special_chebyshev_polynomial_t",
    "aten::special_chebyshev_polynomial_t.x_scalar",
    "aten::special_chebyshev_polynomial_t.n_scalar",
)
def chebyshev_polynomial_t(x: Number, n: Number) -> RecordedValue:
    """Chebyshev's polynomials of the first kind."""
    return _by_recurrence(x, n, lambda one: one, _chebyshev)


@lowering(
    "aten::special_chebyshev_polynomial_u",
    "aten::special_chebyshev_polynomial_u.x_scalar",
    "aten::special_chebyshev_polynomial_u.n_scalar",
)
def chebyshev_polynomial_u(x: Number, n: Number) -> RecordedValue:
    """Chebyshev's polynomials of the second kind."""
    return _by_recurrence(x, n, _twice, _chebyshev)


@lowering(
    "aten::special_chebyshev_polynomial_v",
    "aten::special_chebyshev_polynomial_v.x_scalar",
    "aten::special_chebyshev_polynomial_v.n_scalar",
)
def chebyshev_polynomial_v(x: Number, n: Number) -> RecordedValue:
    """Chebyshev's polynomials of the third kind."""
    return _by_recurrence(x, n, _shifted, _chebyshev)


@lowering(
    "aten::special_chebyshev_polynomial_w",
    "aten::special_chebyshev_polynomial_w.x_scalar",
    "aten::special_chebyshev_polynomial_w.n_scalar",
)
def chebyshev_polynomial_w(x: Number, n: Number) -> RecordedValue:
    """Chebyshev's polynomials of the fourth kind."""
    return _by_recurrence(x, n, lambda one: op.Add(_twice(one), number(1.0)), _chebyshev)


@lowering(
    "aten::special_shifted_chebyshev_polynomial_t",
    "aten::special_shifted_chebyshev_polynomial_t.x_scalar",
    "aten::special_shifted_chebyshev_polynomial_t.n_scalar",
)
def shifted_chebyshev_polynomial_t(x: Number, n: Number) -> RecordedValue:
    """Chebyshev's polynomials of the first kind on [0, 1]."""
    return _by_recurrence(x, n, _shifted, _shifted_chebyshev)


@lowering(
    "aten::special_shifted_chebyshev_polynomial_u",
    "aten::special_shifted_chebyshev_polynomial_u.x_scalar",
    "aten::special_shifted_chebyshev_polynomial_u.n_scalar",
)
def shifted_chebyshev_polynomial_u(x: Number, n: Number) -> RecordedValue:
    """Chebyshev's polynomials of the second kind on [0, 1]."""
    return _by_recurrence(x, n, lambda one: _twice(_shifted(one)), _shifted_chebyshev)


@lowering(
    "aten::special_shifted_chebyshev_polynomial_v",
    "aten::special_shifted_chebyshev_polynomial_v.x_scalar",
    "aten::special_shifted_chebyshev_polynomial_v.n_scalar",
)
def shifted_chebyshev_polynomial_v(x: Number, n: Number) -> RecordedValue:
    """Chebyshev's polynomials of the third kind on [0, 1]."""
    return _by_recurrence(x, n, lambda one: _shifted(_shifted(one)), _shifted_chebyshev)


@lowering(
    "aten::special_shifted_chebyshev_polynomial_w",
    "aten::special_shifted_chebyshev_polynomial_w.x_scalar",
    "aten::special_shifted_chebyshev_polynomial_w.n_scalar",
)
def shifted_chebyshev_polynomial_w(x: Number, n: Number) -> RecordedValue:
    """Chebyshev's polynomials of the fourth kind on [0, 1]."""
    return _by_recurrence(x, n, lambda one: op.Add(_twice(_shifted(one)), number(1.0)), _shifted_chebyshev)


@lowering(
    "aten::special_hermite_polynomial_h",
    "aten::special_hermite_polynomial_h.x_scalar",
    "aten::special_hermite_polynomial_h.n_scalar",
)
def hermite_polynomial_h(x: Number, n: Number) -> RecordedValue:
    """Hermite's polynomials of the physicists."""
    return _by_recurrence(x, n, _twice, _hermite, is_hermite=True)


@lowering(
    "aten::special_hermite_polynomial_he",
    "aten::special_hermite_polynomial_he.x_scalar",
    "aten::special_hermite_polynomial_he.n_scalar",
)
def hermite_polynomial_he(x: Number, n: Number) -> RecordedValue:
    """Hermite's polynomials of the statisticians."""
    return _by_recurrence(x, n, lambda one: one, _hermite_e, is_hermite=True)


@lowering(
    "aten::special_laguerre_polynomial_l",
    "aten::special_laguerre_polynomial_l.x_scalar",
    "aten::special_laguerre_polynomial_l.n_scalar",
)
def laguerre_polynomial_l(x: Number, n: Number) -> RecordedValue:
    """Laguerre's polynomials."""
    return _by_recurrence(x, n, lambda one: op.Sub(number(1.0), one), _laguerre)


@lowering(
    "aten::special_legendre_polynomial_p",
    "aten::special_legendre_polynomial_p.x_scalar",
    "aten::special_legendre_polynomial_p.n_scalar",
)
def legendre_polynomial_p(x: Number, n: Number) -> RecordedValue:
    """Legendre's polynomials."""
    return _by_recurrence(x, n, lambda one: one, _legendre)
