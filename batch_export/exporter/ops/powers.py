"""Powers with a number as exponent, in the dtype in which torch computes them.

Integers are multiplied as integers: they wrap around as torch's do, and no float32 loses their last digits.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_MULTIPLIED = 64
"""Exponents up to here are chains of products; larger ones are left to Pow."""


@lowering("aten::pow.Tensor_Scalar")
def power(self: ir.Value, exponent: int | float | ir.Value) -> ir.Value:
    """Every element to the power of one number, or of a size that is known when the model runs."""
    if axes.is_float(self):
        return op.Pow(self, _like(exponent, self))
    if isinstance(exponent, float) or (isinstance(exponent, ir.Value) and axes.is_float(exponent)):
        single = op.Cast(self, to=ir.DataType.FLOAT)
        return op.Pow(single, _like(exponent, single))
    dtype = self.dtype
    wide = op.Cast(self, to=ir.DataType.INT64)  # Pow has kernels for few integers; the cast back wraps as torch does
    if isinstance(exponent, int) and 0 <= exponent <= _MULTIPLIED:
        result = _product(wide, exponent)
    else:
        result = op.Pow(wide, _like(exponent, wide))
    return result if dtype is None else op.Cast(result, to=dtype)


def _like(exponent: Number, base: ir.Value) -> Number:
    return op.CastLike(exponent, base) if isinstance(exponent, ir.Value) else exponent


def _product(base: ir.Value, exponent: int) -> ir.Value:
    """`base` multiplied by itself, by squaring."""
    if exponent == 0:
        return op.Add(op.Mul(base, 0), 1)
    result: ir.Value | None = None
    square = base
    while True:
        if exponent & 1:
            result = square if result is None else op.Mul(result, square)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        square = op.Mul(square, square)
