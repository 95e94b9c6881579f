"""Random integers between two bounds, of which the upper one is never drawn.

A random number of float32 has 24 bits. Its product with the range is rounded, and may be the upper bound itself: the
largest product is cut off. Wider ranges take two numbers, 48 bits, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops.marking import lowering

_INT64 = int(ir.DataType.INT64)
_EXACT = 1 << 20
"""The widest range for one number of 24 bits: every integer is drawn as often as the others, within one in 16."""


def _integer(value: Size) -> ir.Value:
    return value if isinstance(value, ir.Value) else op.Constant(value_int=value)


def _between(base: ir.Value, low: Size, high: Size, dtype: ir.DataType) -> RecordedValue:
    """Random integers from `low` to `high - 1`, in the shape of `base`, a tensor of float32."""
    drawn: ir.Value = op.RandomUniformLike(base)
    if isinstance(low, int) and isinstance(high, int) and high - low <= _EXACT:
        scaled = op.Mul(drawn, op.Constant(value_float=float(high - low)))
        last = op.Constant(value_float=float(high - low - 1))
    else:
        double = ir.DataType.DOUBLE
        fine = op.Mul(op.Cast(op.RandomUniformLike(base), to=double), op.Constant(value=ir.tensor(2.0**-24, double)))
        span = op.Cast(op.Sub(_integer(high), _integer(low)), to=double)
        scaled = op.Mul(op.Add(op.Cast(drawn, to=double), fine), span)
        last = op.Sub(span, op.Constant(value=ir.tensor(1.0, double)))
    # No number is negative, so that a cast to integers rounds down. Min is of floating point: see upstream.md of int64.
    result = op.Cast(op.Min(scaled, last), to=ir.DataType.INT64)
    if low != 0:
        result = op.Add(result, _integer(low))
    return result if dtype == ir.DataType.INT64 else op.Cast(result, to=dtype)


def _shaped(size: Sequence[Size]) -> ir.Value:
    return op.ConstantOfShape(list(size))


@lowering("aten::randint")
def randint(high: Size, size: Sequence[Size], dtype: int = _INT64) -> RecordedValue:
    """Random integers from 0 to `high - 1`."""
    return _between(_shaped(size), 0, high, _wanted(dtype))


@lowering("aten::randint.low")
def randint_low(low: Size, high: Size, size: Sequence[Size], dtype: int = _INT64) -> RecordedValue:
    """Random integers from `low` to `high - 1`."""
    return _between(_shaped(size), low, high, _wanted(dtype))


def _wanted(dtype: int, like: ir.Value | None = None) -> ir.DataType:
    if dtype not in (-1, None):
        return ir.DataType(dtype)
    return ir.DataType.INT64 if like is None or like.dtype is None else like.dtype


@lowering("aten::randint_like")
def randint_like(self: ir.Value, high: Size, dtype: int = -1) -> RecordedValue:
    """Random integers from 0 to `high - 1` in the shape, and the dtype, of a tensor."""
    return _between(op.Cast(self, to=ir.DataType.FLOAT), 0, high, _wanted(dtype, self))


@lowering("aten::randint_like.low_dtype")
def randint_like_low(self: ir.Value, low: Size, high: Size, dtype: int = -1) -> RecordedValue:
    """Random integers from `low` to `high - 1` in the shape, and the dtype, of a tensor."""
    return _between(op.Cast(self, to=ir.DataType.FLOAT), low, high, _wanted(dtype, self))


@lowering("aten::random.to")
def random_to(self: ir.Value, to: int) -> RecordedValue:
    """Random integers from 0 to `to - 1` in place of a tensor's elements."""
    return _between(op.Cast(self, to=ir.DataType.FLOAT), 0, to, _wanted(-1, self))
