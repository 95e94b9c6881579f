"""The larger and the smaller of two numbers, and numbers held between bounds.

onnxruntime compares the lower halves of two int64 with equal upper halves as signed numbers in Max, Min and Clip: of 5
and 2^31 + 5 it takes 5 for the larger. Integers of 64 bits are chosen by comparisons therefore, unless both are known
to fit into 32 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import onnx_ir as ir

from batch_export.exporter.graph.magnitude import fits_in_32_bits
from batch_export.exporter.graph.operators import op
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

Bound = ir.Value | int | float


def _by_comparison(self: ir.Value, other: ir.Value) -> bool:
    wide = (ir.DataType.INT64, ir.DataType.UINT64)
    return self.dtype in wide and not (fits_in_32_bits(self) and fits_in_32_bits(other))


def larger(self: ir.Value, other: ir.Value) -> ir.Value:
    """The larger of two elements; NaN where one is."""
    if self.dtype == ir.DataType.BOOL:
        return op.Or(self, other)
    return op.Where(op.Greater(self, other), self, other) if _by_comparison(self, other) else op.Max(self, other)


def smaller(self: ir.Value, other: ir.Value) -> ir.Value:
    """The smaller of two elements; NaN where one is."""
    if self.dtype == ir.DataType.BOOL:
        return op.And(self, other)
    return op.Where(op.Less(self, other), self, other) if _by_comparison(self, other) else op.Min(self, other)


def _held(self: ir.Value, low: Bound | None, high: Bound | None) -> ir.Value:
    """`self` held between bounds; with bounds in the wrong order it is the upper one."""
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (low, high)):
        return op.Add(self, axes.like(math.nan, self))
    bounds = [None if bound is None else _as_value(bound, self) for bound in (low, high)]
    given = [bound for bound in bounds if bound is not None]
    # A Clip loses a bound of NaN, which a tensor may hold.
    are_numbers = not any(isinstance(bound, ir.Value) for bound in (low, high))
    if given and are_numbers and not any(_by_comparison(self, bound) for bound in given):
        return op.Clip(self, *bounds)
    choices: tuple[Callable[[ir.Value, ir.Value], ir.Value], ...] = (larger, smaller)
    result = self
    for choose, bound in zip(choices, bounds, strict=True):
        result = result if bound is None else choose(result, bound)
    return op.Identity(result) if result is self else result


def _as_value(bound: Bound, self: ir.Value) -> ir.Value:
    if not isinstance(bound, ir.Value):
        return axes.like(bound, self)
    if bound.dtype == self.dtype:
        return bound
    cast = op.CastLike(bound, self)
    cast.shape = bound.shape if cast.shape is None else cast.shape
    return cast


@lowering("aten::maximum", "aten::max.other", "prims::maximum")
def maximum(self: ir.Value, other: ir.Value) -> ir.Value:
    """The larger of two elements; NaN where one is."""
    return larger(self, other)


@lowering("aten::minimum", "aten::min.other", "prims::minimum")
def minimum(self: ir.Value, other: ir.Value) -> ir.Value:
    """The smaller of two elements; NaN where one is."""
    return smaller(self, other)


def _skipping_nan(choose: Callable[[ir.Value, ir.Value], ir.Value], self: ir.Value, other: ir.Value) -> ir.Value:
    if self.dtype == ir.DataType.BOOL != other.dtype:
        self = op.CastLike(self, other)
    chosen = choose(self, other)
    if not axes.is_float(self) and not axes.is_float(other):
        return chosen
    return op.Where(op.IsNaN(self), other, op.Where(op.IsNaN(other), self, chosen))


@lowering("aten::fmax", "prims::fmax")
def fmax(self: ir.Value, other: ir.Value) -> ir.Value:
    """The larger of two elements; a number beats NaN."""
    return _skipping_nan(larger, self, other)


@lowering("aten::fmin", "prims::fmin")
def fmin(self: ir.Value, other: ir.Value) -> ir.Value:
    """The smaller of two elements; a number beats NaN."""
    return _skipping_nan(smaller, self, other)


@lowering("aten::relu")
def relu(self: ir.Value) -> ir.Value:
    """What is above 0; of integers by comparison, since Relu would go through floating point."""
    return op.Relu(self) if axes.is_float(self) else larger(self, axes.like(0, self))


@lowering("aten::clamp", "aten::clamp.Tensor", "aten::clip", "aten::clip.Tensor")
def clamp(self: ir.Value, min: Bound | None = None, max: Bound | None = None) -> ir.Value:
    """`self` held between two bounds, of which either may be absent."""
    return _held(self, min, max)


@lowering("aten::clamp_min", "aten::clamp_min.Tensor")
def clamp_min(self: ir.Value, min: Bound) -> ir.Value:
    """`self` held above a bound."""
    return _held(self, min, None)


@lowering("aten::clamp_max", "aten::clamp_max.Tensor")
def clamp_max(self: ir.Value, max: Bound) -> ir.Value:
    """`self` held below a bound."""
    return _held(self, None, max)


@lowering("aten::hardtanh")
def hardtanh(self: ir.Value, min_val: float = -1.0, max_val: float = 1.0) -> ir.Value:
    """`self` held between two numbers."""
    return _held(self, min_val, max_val)


@lowering("aten::relu6")
def relu6(self: ir.Value) -> ir.Value:
    """`self` held between 0 and 6."""
    return _held(self, 0, 6)
