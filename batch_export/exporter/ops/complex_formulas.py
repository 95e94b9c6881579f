"""Formulas of complex numbers on their real and imaginary parts, in float64.

There they lose no digit that float32 has; principal values, cut where C99 cuts them.
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
from batch_export.exporter.ops.error_function import number

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
    return op.Sqrt(op.Add(op.Mul(z[0], z[0]), op.Mul(z[1], z[1])))


def inverse(z: Parts) -> Parts:
    size = op.Add(op.Mul(z[0], z[0]), op.Mul(z[1], z[1]))
    return op.Div(z[0], size), op.Neg(op.Div(z[1], size))


def chosen(condition: ir.Value, z: Parts, w: Parts) -> Parts:
    return op.Where(condition, z[0], w[0]), op.Where(condition, z[1], w[1])


def exp(z: Parts) -> Parts:
    size = op.Exp(z[0])
    nothing = op.Equal(size, number(0.0))  # in whatever direction
    return op.Where(nothing, size, op.Mul(size, op.Cos(z[1]))), op.Where(nothing, size, op.Mul(size, op.Sin(z[1])))


def log(z: Parts) -> Parts:
    return op.Log(length(z)), signs.atan2(z[1], z[0])


def sqrt(z: Parts) -> Parts:
    half = op.Sqrt(op.Mul(op.Add(length(z), op.Abs(z[0])), number(0.5)))
    other = op.Div(op.Abs(z[1]), op.Where(op.Equal(half, number(0.0)), number(1.0), op.Add(half, half)))
    is_left = op.Less(z[0], number(0.0))
    size = op.Where(is_left, half, other)
    return op.Where(is_left, other, half), signs.copysign(size, z[1])


def sinh(z: Parts) -> Parts:
    """sinh."""
    return op.Mul(op.Sinh(z[0]), op.Cos(z[1])), op.Mul(op.Cosh(z[0]), op.Sin(z[1]))


def cosh(z: Parts) -> Parts:
    return op.Mul(op.Cosh(z[0]), op.Cos(z[1])), op.Mul(op.Sinh(z[0]), op.Sin(z[1]))


def tanh(z: Parts) -> Parts:
    a = op.Clip(op.Add(z[0], z[0]), number(-60.0), number(60.0))
    b = op.Add(z[1], z[1])
    below = op.Add(op.Cosh(a), op.Cos(b))
    return op.Div(op.Sinh(a), below), op.Div(op.Sin(b), below)


def asinh(z: Parts) -> Parts:
    is_left = op.Less(z[0], number(0.0))
    right = chosen(is_left, minus(z), z)
    root = sqrt(plus(times(right, right), 1.0))
    found = log((op.Add(right[0], root[0]), op.Add(right[1], root[1])))
    return chosen(is_left, minus(found), found)


def acosh(z: Parts) -> Parts:
    root = times(sqrt(plus(z, 1.0)), sqrt(plus(z, -1.0)))
    return log((op.Add(z[0], root[0]), op.Add(z[1], root[1])))


def atanh(z: Parts) -> Parts:
    over, under = log(plus(z, 1.0)), log(plus(minus(z), 1.0))
    return scaled((op.Sub(over[0], under[0]), op.Sub(over[1], under[1])), 0.5)


def asin(z: Parts) -> Parts:
    return turned_back(asinh(turned(z)))


def acos(z: Parts) -> Parts:
    return plus(minus(asin(z)), math.pi / 2)


def sigmoid(z: Parts) -> Parts:
    return inverse(plus(exp(minus(z)), 1.0))


def function_of(self: ir.Value, function: Callable[[Parts], Parts]) -> RecordedValue:
    return pairs_of(function(parts_of(self)), self)
