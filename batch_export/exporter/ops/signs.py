"""Signs, angles, steps and what takes the place of NaN and infinities: the operators that tell -0.0 and NaN apart."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.division import operands
from batch_export.exporter.ops.doubles import arctangent
from batch_export.exporter.ops.marking import lowering


def _is_minus(value: ir.Value) -> RecordedValue:
    """Whether the sign is a minus, that of -0.0 included (1 / -0.0 is -inf)."""
    return op.Less(op.Where(op.Equal(value, axes.like(0, value)), op.Reciprocal(value), value), axes.like(0, value))


def _unit(value: ir.Value) -> RecordedValue:
    """-1 for a minus, 1 otherwise."""
    return op.Where(_is_minus(value), axes.like(-1, value), axes.like(1, value))


@lowering("aten::sign", "aten::sgn", "prims::sign")
def sign(self: ir.Value) -> RecordedValue:
    """-1, 0 or 1; 0 for NaN. Of integers by comparisons, since onnxruntime's Sign takes int64 by its lower 32 bits."""
    if self.dtype == ir.DataType.BOOL:
        return op.Identity(self)
    zero = axes.like(0, self)
    if axes.is_float(self):
        return op.Where(op.IsNaN(self), zero, op.Sign(self))
    return op.Sub(op.CastLike(op.Greater(self, zero), self), op.CastLike(op.Less(self, zero), self))


def _infinite(self: ir.Value, **signs: int) -> RecordedValue:
    """IsInf in the dtype that the number has: float32 would take 1e300 for infinite. Of other dtypes nothing is."""
    return op.IsInf(self if axes.is_float(self) else op.Cast(self, to=ir.DataType.FLOAT), **signs)


@lowering("aten::isinf", "prims::isinf")
def is_infinite(self: ir.Value) -> RecordedValue:
    """Whether a number is an infinity of either sign."""
    return _infinite(self)


@lowering("aten::isposinf")
def is_positive_infinity(self: ir.Value) -> RecordedValue:
    """Whether a number is the positive infinity."""
    return _infinite(self, detect_negative=0)


@lowering("aten::isneginf")
def is_negative_infinity(self: ir.Value) -> RecordedValue:
    """Whether a number is the negative infinity."""
    return _infinite(self, detect_positive=0)


@lowering("aten::copysign.Tensor", "aten::copysign.Scalar")
def copysign(self: Number, other: Number) -> RecordedValue:
    """The size of one number with the sign of the other, that of -0.0 included."""
    left, right = operands(self, other)
    return op.Mul(op.Abs(left), _unit(right))


@lowering("aten::heaviside")
def heaviside(self: ir.Value, values: ir.Value) -> RecordedValue:
    """0 below 0, 1 above, the given value at 0, and 0 for NaN."""
    zero = axes.like(0, self)
    above = op.CastLike(op.Greater(self, zero), self)
    return op.Where(op.Not(op.Equal(self, zero)), above, values)


@lowering("aten::atan2", "aten::arctan2", "prims::atan2")
def atan2(self: ir.Value, other: ir.Value) -> RecordedValue:
    """The angle of the point (other, self), with the signs of zeros and for infinities as in torch."""
    zero, one, pi = (axes.like(number, self) for number in (0.0, 1.0, math.pi))
    both = op.And(op.IsInf(self), op.IsInf(other))
    height, width = op.Abs(self), op.Abs(other)
    # Both infinite: as far as each other; both zero: 0 / 1, so that only the signs decide.
    nothing = op.And(op.Equal(height, zero), op.Equal(width, zero))
    ratio = op.Div(op.Where(both, one, height), op.Where(op.Or(both, nothing), one, width))
    angle = arctangent(ratio)
    angle = op.Where(_is_minus(other), op.Sub(pi, angle), angle)
    return op.Mul(angle, _unit(self))


@lowering("aten::nan_to_num")
def nan_to_num(
    self: ir.Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> RecordedValue:
    """NaN and infinities replaced, the latter by the largest numbers of the dtype where nothing is given."""
    if not axes.is_float(self):
        return op.Identity(self)
    assert self.dtype is not None
    finfo: Any = ml_dtypes.finfo  # of numpy's own dtypes too
    limits = finfo(self.dtype.numpy())
    high = axes.like(float(limits.max) if posinf is None else posinf, self)
    low = axes.like(float(limits.min) if neginf is None else neginf, self)
    above = op.Equal(self, axes.like(float("inf"), self))
    below = op.Equal(self, axes.like(float("-inf"), self))
    result = op.Where(above, high, op.Where(below, low, self))
    return op.Where(op.IsNaN(self), axes.like(0.0 if nan is None else nan, self), result)


@lowering("aten::angle")
def angle(self: ir.Value) -> RecordedValue:
    """The angle of a real number: pi where negative, 0 elsewhere, NaN stays."""
    data = self if axes.is_float(self) else op.Cast(self, to=ir.DataType.FLOAT)
    result = op.Where(op.Less(data, axes.like(0.0, data)), axes.like(math.pi, data), axes.like(0.0, data))
    return op.Where(op.IsNaN(data), data, result)
