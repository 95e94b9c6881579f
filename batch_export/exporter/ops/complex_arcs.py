"""Inverses of circular and hyperbolic functions of complex numbers, on their parts in float64.

No digit is lost near 1, beside the axes or far from them; infinities, NaN and zeros are as C99's annex G has them.
Source: T. Hull, T. Fairgrieve and P. Tang, Implementing the complex arcsine and arccosine functions (1997).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import signs
from batch_export.exporter.ops.complex_formulas import Parts, length, log, turned, turned_back
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.stable import log_one_plus

_FAR = 1e100
"""Beyond it 1 is nothing beside a number, whose square still fits."""


@dataclass(frozen=True, slots=True)
class _Arcs:
    """What asin and acos of a number are made of, all of them of the quadrant where both parts are positive.

    Attributes:
        size: of the imaginary part of both.
        sine: the real part of asin.
        cosine: that of acos, of the number's own sign.
    """

    size: RecordedValue
    sine: RecordedValue
    cosine: RecordedValue


def asin(z: Parts) -> Parts:
    arcs = _arcs(z)
    return signs.copysign(arcs.sine, z[0]), signs.copysign(arcs.size, z[1])


def acos(z: Parts) -> Parts:
    arcs = _arcs(z)
    return arcs.cosine, op.Neg(signs.copysign(arcs.size, z[1]))


def asinh(z: Parts) -> Parts:
    return turned_back(asin(turned(z)))


def acosh(z: Parts) -> Parts:
    arcs = _arcs(z)
    return arcs.size, signs.copysign(arcs.cosine, z[1])


def atanh(z: Parts) -> Parts:
    one, far = number(1.0), _is_far(z)
    x, y = (op.Where(far, one, op.Abs(part)) for part in z)
    apart = op.Sub(one, x)
    real = op.Mul(
        number(0.25), log_one_plus(op.Div(op.Mul(number(4.0), x), op.Add(op.Mul(apart, apart), op.Mul(y, y))))
    )
    beside = op.Sub(op.Mul(apart, op.Add(one, x)), op.Mul(y, y))
    angle = op.Mul(number(0.5), signs.atan2(op.Add(y, y), beside))
    away = length(z)
    infinite = op.Or(op.IsInf(z[0]), op.IsInf(z[1]))
    nothing = op.Or(infinite, op.Equal(z[0], number(0.0)))
    far_real = op.Where(nothing, number(0.0), op.Div(op.Div(op.Abs(z[0]), away), away))
    unknown = op.Or(op.IsNaN(z[1]), op.And(op.IsNaN(z[0]), op.Not(op.IsInf(z[1]))))
    far_angle = op.Where(unknown, number(math.nan), number(math.pi / 2))
    real, angle = op.Where(far, far_real, real), op.Where(far, far_angle, angle)
    return signs.copysign(real, z[0]), signs.copysign(angle, z[1])


def atan(z: Parts) -> Parts:
    return turned_back(atanh(turned(z)))


def _arcs(z: Parts) -> _Arcs:
    zero, one, half, far = number(0.0), number(1.0), number(0.5), _is_far(z)
    x, y = (op.Where(far, one, op.Abs(part)) for part in z)
    over, under = op.Add(x, one), op.Abs(op.Sub(x, one))
    squared = op.Mul(y, y)
    r, s = (op.Sqrt(op.Add(op.Mul(one_side, one_side), squared)) for one_side in (over, under))
    a = op.Mul(half, op.Add(r, s))
    is_within = op.LessOrEqual(x, one)
    # r - (x + 1) and s - |x - 1| are y squared times these; what is left of the other difference is a sum.
    right, left = op.Div(one, op.Add(r, over)), _over(op.Add(s, under))
    both, across = op.Mul(half, op.Add(right, left)), op.Add(s, under)
    other = op.Mul(half, op.Add(op.Mul(squared, right), across))
    over_one = op.Where(is_within, op.Mul(squared, both), other)  # a - 1
    root = op.Where(is_within, op.Mul(y, op.Sqrt(op.Mul(both, op.Add(a, one)))), op.Sqrt(op.Mul(other, op.Add(a, one))))
    size = log_one_plus(op.Add(over_one, root))
    height = op.Where(is_within, op.Sqrt(op.Mul(op.Add(a, x), other)), op.Mul(y, op.Sqrt(op.Mul(both, op.Add(a, x)))))
    size = op.Where(far, op.Add(log(z)[0], number(math.log(2))), size)
    width, height = op.Where(far, op.Abs(z[0]), x), op.Where(far, op.Abs(z[1]), height)
    is_upright = op.Equal(z[0], zero)
    sine = op.Where(is_upright, zero, signs.atan2(width, height))
    cosine = op.Where(is_upright, number(math.pi / 2), signs.atan2(height, signs.copysign(width, z[0])))
    return _Arcs(size, sine, cosine)


def _is_far(z: Parts) -> RecordedValue:
    """Also where a part is NaN."""
    near = (op.LessOrEqual(op.Abs(part), number(_FAR)) for part in z)
    return op.Not(op.And(*near))


def _over(value: RecordedValue) -> RecordedValue:
    return op.Div(number(1.0), op.Where(op.Equal(value, number(0.0)), number(1.0), value))
