"""The Airy function Ai: its power series around 0, and its expansions far from it.

Source: Abramowitz and Stegun 10.4.2 to 10.4.5, 10.4.59 and 10.4.60. Computed in float64: at the borders about nine
digits are lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops.bessel_functions import series
from batch_export.exporter.ops.elementwise import as_float
from batch_export.exporter.ops.error_function import back, double, number, polynomial
from batch_export.exporter.ops.marking import lowering

_AT_ZERO, _SLOPE = 3.0 ** (-2 / 3) / math.gamma(2 / 3), 3.0 ** (-1 / 3) / math.gamma(1 / 3)
_ABOVE, _BELOW = 6.0, -8.0
_TERMS, _FAR_TERMS = 40, 14


def _solution(offset: int) -> tuple[float, ...]:
    """Coefficients of powers of x cubed of the solution that begins with x to the power of `offset`."""
    found = [1.0]
    for place in range(1, _TERMS):
        found.append(found[-1] / ((3 * place + offset) * (3 * place + offset - 1)))
    return tuple(found)


def _near(x: ir.Value) -> RecordedValue:
    cube = op.Mul(op.Mul(x, x), x)
    even = op.Mul(series(_solution(0), cube), number(_AT_ZERO))
    return op.Sub(even, op.Mul(op.Mul(x, series(_solution(1), cube)), number(_SLOPE)))


def _far_terms() -> Sequence[float]:
    return [math.gamma(3 * k + 0.5) / (54.0**k * math.factorial(k) * math.gamma(k + 0.5)) for k in range(_FAR_TERMS)]


def _far(size: ir.Value) -> tuple[RecordedValue, RecordedValue]:
    """Ai at a large number, and at its negative."""
    root = op.Sqrt(size)
    zeta = op.Mul(op.Mul(size, root), number(2 / 3))
    inverse = op.Reciprocal(zeta)
    terms = _far_terms()
    falling = polynomial(tuple((-1.0) ** k * term for k, term in reversed(list(enumerate(terms)))), inverse)
    quarter = op.Mul(op.Sqrt(root), number(math.sqrt(math.pi)))
    above = op.Div(op.Mul(op.Exp(op.Neg(zeta)), op.Mul(falling, number(0.5))), quarter)
    square = op.Mul(inverse, inverse)
    even = polynomial(tuple((-1.0) ** k * term for k, term in reversed(list(enumerate(terms[::2])))), square)
    odd = polynomial(tuple((-1.0) ** k * term for k, term in reversed(list(enumerate(terms[1::2])))), square)
    angle = op.Add(zeta, number(math.pi / 4))
    waves = op.Sub(op.Mul(op.Sin(angle), even), op.Mul(op.Mul(op.Cos(angle), odd), inverse))
    return above, op.Div(waves, quarter)


@lowering("aten::special_airy_ai")
def special_airy_ai(x: ir.Value) -> RecordedValue:
    """Ai; NaN for infinities, as in torch."""
    data = double(as_float(x))
    is_high, is_low = op.Greater(data, number(_ABOVE)), op.Less(data, number(_BELOW))
    is_far = op.Or(is_high, is_low)
    above, below = _far(op.Where(is_far, op.Abs(data), number(_ABOVE)))
    near = _near(op.Where(is_far, number(0.0), data))
    found = op.Where(is_high, above, op.Where(is_low, below, near))
    return back(op.Where(op.IsInf(data), number(math.nan), found), x)
