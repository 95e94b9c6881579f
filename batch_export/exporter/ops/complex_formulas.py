"""Formulas of complex numbers on their real and imaginary parts, in float64.

There they lose no digit that float32 has; principal values, cut where C99 cuts them.
Infinities, NaN and zeros are as C99's annex G has them. The functions' inverses are in `complex_arcs.py`.
Source: W. Kahan, Branch cuts for complex elementary functions, and Abramowitz and Stegun, chapter 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from batch_export.exporter.graph.complex_parts import joined, part
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes, signs
from batch_export.exporter.ops.complex_numbers import quotient
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.stable import exp_minus_one, log_one_plus

Parts = tuple[RecordedValue, RecordedValue]
"""Real and imaginary parts in float64."""


def parts_of(pairs: ir.Value) -> Parts:
    wide = [op.Cast(part(pairs, which), to=ir.DataType.DOUBLE) for which in (0, 1)]
    for one in wide:
        axes.shaped(one, None if pairs.shape is None else list(pairs.shape)[:-1])
    return wide[0], wide[1]


def pairs_of(parts: Parts, like: ir.Value) -> RecordedValue:
    return op.CastLike(joined(*parts), like)


def minus(z: Parts) -> Parts:
    return op.Neg(z[0]), op.Neg(z[1])


def turned(z: Parts) -> Parts:
    """i z."""
    return op.Neg(z[1]), z[0]


def turned_back(z: Parts) -> Parts:
    """-i z."""
    return z[1], op.Neg(z[0])


def plus(z: Parts, real: float) -> Parts:
    return op.Add(z[0], number(real)), z[1]


def times(z: Parts, w: Parts) -> Parts:
    real = op.Sub(op.Mul(z[0], w[0]), op.Mul(z[1], w[1]))
    return real, op.Add(op.Mul(z[0], w[1]), op.Mul(z[1], w[0]))


def scaled(z: Parts, factor: float) -> Parts:
    return op.Mul(z[0], number(factor)), op.Mul(z[1], number(factor))


def length(z: Parts) -> RecordedValue:
    """The absolute value; z is divided by its larger part, whose square may not fit."""
    size = op.Max(op.Abs(z[0]), op.Abs(z[1]))
    size = op.Where(op.Or(op.Equal(size, number(0.0)), op.IsInf(size)), number(1.0), size)
    a, b = op.Div(z[0], size), op.Div(z[1], size)
    return op.Mul(size, op.Sqrt(op.Add(op.Mul(a, a), op.Mul(b, b))))


def inverse(z: Parts) -> Parts:
    return quotient((number(1.0), number(0.0)), z)


def exp(z: Parts) -> Parts:
    """The exponential: 0 of minus infinity whatever the angle, infinite of infinity, real where the angle is 0."""
    real, angle = z
    nothing, unknown = number(0.0), number(math.nan)
    size = op.Exp(real)
    is_angle = op.Not(op.Or(op.IsInf(angle), op.IsNaN(angle)))
    is_none, is_real = op.Equal(real, number(-math.inf)), op.Equal(angle, nothing)
    cosine = op.Where(is_angle, op.Mul(size, op.Cos(angle)), op.Where(op.IsInf(real), op.Abs(real), unknown))
    sine = op.Where(is_real, angle, op.Where(is_angle, op.Mul(size, op.Sin(angle)), unknown))
    return op.Where(is_none, size, cosine), op.Where(is_none, size, sine)


def log(z: Parts) -> Parts:
    """The logarithm: infinite wherever a part is, whatever the other one is; no digit is lost of a length near 1."""
    one, half = number(1.0), number(0.5)
    is_infinite = op.Or(op.IsInf(z[0]), op.IsInf(z[1]))
    larger, smaller = op.Max(op.Abs(z[0]), op.Abs(z[1])), op.Min(op.Abs(z[0]), op.Abs(z[1]))
    is_near = op.And(op.Greater(larger, half), op.Less(larger, number(2.0)))
    larger, smaller = (op.Where(is_near, value, one) for value in (larger, smaller))
    beyond = op.Add(op.Mul(op.Sub(larger, one), op.Add(larger, one)), op.Mul(smaller, smaller))
    found = op.Where(is_near, op.Mul(half, log_one_plus(beyond)), op.Log(length(z)))
    return op.Where(is_infinite, number(math.inf), found), signs.atan2(z[1], z[0])


def log_beside_one(z: Parts) -> Parts:
    """log(1 + z), which loses no digit of a small z."""
    shifted = plus(z, 1.0)
    is_small = op.Less(op.Max(op.Abs(z[0]), op.Abs(z[1])), number(0.25))
    x, y = (op.Where(is_small, part, number(0.0)) for part in z)
    beside = op.Add(op.Mul(x, op.Add(x, number(2.0))), op.Mul(y, y))
    found = log(shifted)
    return op.Where(is_small, op.Mul(number(0.5), log_one_plus(beside)), found[0]), found[1]


def exp_less_one(z: Parts) -> Parts:
    """exp(z) - 1 as torch computes it, which loses no digit of a small z."""
    half = op.Sin(op.Mul(z[1], number(0.5)))
    real = op.Sub(op.Mul(exp_minus_one(z[0]), op.Cos(z[1])), op.Mul(number(2.0), op.Mul(half, half)))
    return real, op.Mul(op.Exp(z[0]), op.Sin(z[1]))


def sqrt(z: Parts) -> Parts:
    """The root in the right half plane; of an infinite imaginary part infinite, whatever the real one is."""
    half = op.Sqrt(op.Mul(op.Add(length(z), op.Abs(z[0])), number(0.5)))
    other = op.Div(op.Abs(z[1]), op.Where(op.Equal(half, number(0.0)), number(1.0), op.Add(half, half)))
    half, other = (
        op.Where(op.IsInf(z[0]), end, one) for end, one in ((op.Abs(z[0]), half), (op.Mul(z[1], number(0.0)), other))
    )
    is_left = op.Less(z[0], number(0.0))
    size = op.Where(is_left, half, other)
    real, imaginary = op.Where(is_left, other, half), signs.copysign(size, z[1])
    is_up = op.IsInf(z[1])
    return op.Where(is_up, number(math.inf), op.Abs(real)), op.Where(is_up, z[1], imaginary)


def sinh(z: Parts) -> Parts:
    """Of a real number real, also where it is infinite; of infinity infinite, whatever the angle is."""
    cosine = op.Cos(z[1])
    real = op.Where(op.IsNaN(cosine), _beside_no_angle(z[0], z[0]), op.Mul(op.Sinh(z[0]), cosine))
    return real, op.Where(op.Equal(z[1], number(0.0)), z[1], op.Mul(op.Cosh(z[0]), op.Sin(z[1])))


def cosh(z: Parts) -> Parts:
    """As `sinh` there."""
    zero, cosine = number(0.0), op.Cos(z[1])
    real = op.Where(op.IsNaN(cosine), _beside_no_angle(z[0], number(math.nan)), op.Mul(op.Cosh(z[0]), cosine))
    height = op.Mul(op.Sinh(z[0]), op.Sin(z[1]))
    flat = op.Where(op.Less(z[0], zero), op.Neg(z[1]), z[1])
    height = op.Where(op.And(op.Equal(z[1], zero), op.IsNaN(height)), flat, height)
    return real, op.Where(op.And(op.Equal(z[0], zero), op.IsNaN(height)), zero, height)


def _beside_no_angle(real: RecordedValue, at_zero: RecordedValue) -> RecordedValue:
    """What stands beside an infinite or unknown angle: infinity for infinities, something for 0, and NaN."""
    other = op.Where(op.Equal(real, number(0.0)), at_zero, number(math.nan))
    return op.Where(op.IsInf(real), number(math.inf), other)


def tanh(z: Parts) -> Parts:
    a = op.Clip(op.Add(z[0], z[0]), number(-60.0), number(60.0))
    b = op.Add(z[1], z[1])
    below = op.Add(op.Cosh(a), op.Cos(b))
    real, height = op.Div(op.Sinh(a), below), op.Div(op.Sin(b), below)
    far, nothing = op.IsInf(z[0]), number(0.0)
    real = op.Where(far, op.Sign(z[0]), op.Where(op.Equal(z[0], nothing), z[0], real))
    return real, op.Where(op.And(far, op.IsNaN(height)), nothing, op.Where(op.Equal(z[1], nothing), z[1], height))


def sigmoid(z: Parts) -> Parts:
    return inverse(plus(exp(minus(z)), 1.0))


def function_of(self: ir.Value, function: Callable[[Parts], Parts]) -> RecordedValue:
    return pairs_of(function(parts_of(self)), self)
