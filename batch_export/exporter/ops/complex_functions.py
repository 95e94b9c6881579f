"""Functions of complex numbers, stored as pairs of real ones: roots, logarithms, circular and hyperbolic ones.

What they are computed by is in `complex_formulas.py`, powers are in `complex_powers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.complex_parts import is_pair
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import ComplexNumber, RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops import complex_arcs as arcs
from batch_export.exporter.ops import complex_formulas as formulas
from batch_export.exporter.ops.complex_numbers import not_equal, to_dtype
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.norms import vector_norm
from batch_export.exporter.ops.sorting import nonzero


@lowering("aten::sqrt", "prims::sqrt", is_complex=True)
def square_root(self: ir.Value) -> RecordedValue:
    """The root in the right half plane."""
    return formulas.function_of(self, formulas.sqrt)


@lowering("aten::rsqrt", "prims::rsqrt", is_complex=True)
def inverse_square_root(self: ir.Value) -> RecordedValue:
    """1 over the root."""
    return formulas.function_of(self, lambda z: formulas.inverse(formulas.sqrt(z)))


@lowering("aten::log", "prims::log", is_complex=True)
def logarithm(self: ir.Value) -> RecordedValue:
    """The logarithm with an angle in (-pi, pi]."""
    return formulas.function_of(self, formulas.log)


@lowering("aten::log2", "prims::log2", is_complex=True)
def logarithm_of_two(self: ir.Value) -> RecordedValue:
    """The logarithm to base 2."""
    return formulas.function_of(self, lambda z: formulas.scaled(formulas.log(z), 1.0 / math.log(2.0)))


@lowering("aten::log10", "prims::log10", is_complex=True)
def logarithm_of_ten(self: ir.Value) -> RecordedValue:
    """The logarithm to base 10."""
    return formulas.function_of(self, lambda z: formulas.scaled(formulas.log(z), 1.0 / math.log(10.0)))


@lowering("aten::log1p", "prims::log1p", is_complex=True)
def logarithm_beside_one(self: ir.Value) -> RecordedValue:
    """log(1 + z)."""
    return formulas.function_of(self, formulas.log_beside_one)


@lowering("aten::exp2", "prims::exp2", is_complex=True)
def power_of_two(self: ir.Value) -> RecordedValue:
    """2 to the power of z."""
    return formulas.function_of(self, lambda z: formulas.exp(formulas.scaled(z, math.log(2.0))))


@lowering("aten::expm1", "prims::expm1", is_complex=True)
def exponential_less_one(self: ir.Value) -> RecordedValue:
    """exp(z) - 1."""
    return formulas.function_of(self, formulas.exp_less_one)


@lowering("aten::sigmoid", "prims::sigmoid", is_complex=True)
def sigmoid(self: ir.Value) -> RecordedValue:
    """1 / (1 + exp(-z))."""
    return formulas.function_of(self, formulas.sigmoid)


@lowering("aten::silu", is_complex=True)
def silu(self: ir.Value) -> RecordedValue:
    """z / (1 + exp(-z))."""
    return formulas.function_of(self, lambda z: formulas.times(z, formulas.sigmoid(z)))


@lowering("aten::sinh", "prims::sinh", is_complex=True)
def hyperbolic_sine(self: ir.Value) -> RecordedValue:
    """sinh."""
    return formulas.function_of(self, formulas.sinh)


@lowering("aten::cosh", "prims::cosh", is_complex=True)
def hyperbolic_cosine(self: ir.Value) -> RecordedValue:
    """cosh."""
    return formulas.function_of(self, formulas.cosh)


@lowering("aten::tanh", "prims::tanh", is_complex=True)
def hyperbolic_tangent(self: ir.Value) -> RecordedValue:
    """tanh."""
    return formulas.function_of(self, formulas.tanh)


@lowering("aten::sin", "prims::sin", is_complex=True)
def sine(self: ir.Value) -> RecordedValue:
    """sin(z) = -i sinh(iz); of an infinite imaginary part without an angle infinite, as C has it."""

    def found(z: formulas.Parts) -> formulas.Parts:
        real, imaginary = formulas.turned_back(formulas.sinh(formulas.turned(z)))
        return real, op.Where(op.And(op.IsNaN(real), op.IsInf(imaginary)), op.Abs(imaginary), imaginary)

    return formulas.function_of(self, found)


@lowering("aten::cos", "prims::cos", is_complex=True)
def cosine(self: ir.Value) -> RecordedValue:
    """cos(z) = cosh(iz)."""
    return formulas.function_of(self, lambda z: formulas.cosh(formulas.turned(z)))


@lowering("aten::tan", "prims::tan", is_complex=True)
def tangent(self: ir.Value) -> RecordedValue:
    """tan(z) = -i tanh(iz)."""
    return formulas.function_of(self, lambda z: formulas.turned_back(formulas.tanh(formulas.turned(z))))


@lowering("aten::asinh", "prims::asinh", is_complex=True)
def area_sine(self: ir.Value) -> RecordedValue:
    """The inverse of sinh."""
    return formulas.function_of(self, arcs.asinh)


@lowering("aten::acosh", "prims::acosh", is_complex=True)
def area_cosine(self: ir.Value) -> RecordedValue:
    """The inverse of cosh, in the right half plane."""
    return formulas.function_of(self, arcs.acosh)


@lowering("aten::atanh", "prims::atanh", is_complex=True)
def area_tangent(self: ir.Value) -> RecordedValue:
    """The inverse of tanh."""
    return formulas.function_of(self, arcs.atanh)


@lowering("aten::asin", "prims::asin", is_complex=True)
def arc_sine(self: ir.Value) -> RecordedValue:
    """The inverse of sin."""
    return formulas.function_of(self, arcs.asin)


@lowering("aten::acos", "prims::acos", is_complex=True)
def arc_cosine(self: ir.Value) -> RecordedValue:
    """The inverse of cos."""
    return formulas.function_of(self, arcs.acos)


@lowering("aten::atan", "prims::atan", is_complex=True)
def arc_tangent(self: ir.Value) -> RecordedValue:
    """The inverse of tan."""
    return formulas.function_of(self, arcs.atan)


@lowering("aten::abs", "prims::abs", is_complex=True)
def absolute(self: ir.Value) -> RecordedValue:
    """The length; infinite where one part is, whatever the other one: that part then stands for both."""
    others = axes.shaped(op.Gather(self, [1, 0], axis=-1), self.shape)
    kept = op.Where(op.IsInf(self), self, others)
    if self.dtype == ir.DataType.DOUBLE:  # which has no wider one for its squares
        length = formulas.length(formulas.parts_of(axes.shaped(kept, self.shape)))
    else:
        length = op.CastLike(op.ReduceL2(op.Cast(kept, to=ir.DataType.DOUBLE), [-1], keepdims=0), self)
    return axes.shaped(length, None if self.shape is None else list(self.shape)[:-1])


@lowering("aten::sgn", is_complex=True)
def direction(self: ir.Value) -> RecordedValue:
    """The number over its length, 0 for 0."""
    length = op.Unsqueeze(absolute(self), [-1])
    zero = op.Equal(length, op.CastLike(0, length))
    return op.Div(self, op.Where(zero, op.CastLike(1, length), length))


@lowering("aten::linalg_vector_norm", is_complex=True)
def norm(
    self: ir.Value, ord: float = 2.0, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1
) -> RecordedValue:
    """The norm of the lengths, which is real."""
    wide = ir.DataType.DOUBLE if dtype in (ir.DataType.COMPLEX128, ir.DataType.DOUBLE) else -1
    return vector_norm(absolute(self), ord, dim, keepdim, wide)


@lowering("aten::neg", "prims::neg", is_complex=True)
def negative(self: ir.Value) -> RecordedValue:
    """-z."""
    return op.Neg(self)


@lowering("prims::convert_element_type", is_complex=True)
def convert_element_type(a: ir.Value, dtype: int) -> RecordedValue:
    """As `to`."""
    return to_dtype(a, dtype)


@lowering("aten::nonzero", is_complex=True)
def places(self: ir.Value) -> RecordedValue:
    """The places of numbers that are not 0, `int64[n, rank]`."""
    return nonzero(axes.shaped(not_equal(self, 0), None if self.shape is None else list(self.shape)[:-1]))


@lowering("aten::logical_not", is_complex=True)
def logical_not(self: ir.Value) -> RecordedValue:
    """Whether a number is 0."""
    return op.Not(not_equal(self, 0))


def _is_not_zero(value: ComplexNumber) -> RecordedValue:
    return not_equal(value, 0) if is_pair(value) else op.Cast(value, to=ir.DataType.BOOL)


@lowering("aten::logical_and", is_complex=True)
def logical_and(self: ComplexNumber, other: ComplexNumber) -> RecordedValue:
    """Whether neither is 0."""
    return op.And(_is_not_zero(self), _is_not_zero(other))


@lowering("aten::logical_or", is_complex=True)
def logical_or(self: ComplexNumber, other: ComplexNumber) -> RecordedValue:
    """Whether one is not 0."""
    return op.Or(_is_not_zero(self), _is_not_zero(other))


@lowering("aten::logical_xor", is_complex=True)
def logical_xor(self: ComplexNumber, other: ComplexNumber) -> RecordedValue:
    """Whether just one is 0."""
    return op.Xor(_is_not_zero(self), _is_not_zero(other))


def _variance(self: ir.Value, dim: Sequence[int] | None, correction: float | None, keepdim: bool) -> formulas.Parts:
    """The variance, which is real, and the mean as pairs."""
    count = axes.rank(self) - 1
    listed = sorted({one % count for one in dim}) if dim and count else list(range(count))
    wide = axes.shaped(op.Cast(self, to=ir.DataType.DOUBLE), self.shape)
    sizes = [op.Cast(axes.size(self, axis), to=ir.DataType.DOUBLE) for axis in listed]
    elements: RecordedValue = number(1.0)
    for size in sizes:
        elements = op.Mul(elements, op.Squeeze(size, [0]))
    mean = op.Div(op.ReduceSum(wide, listed, keepdims=1), elements) if listed else wide  # of nothing NaN
    apart = op.Sub(wide, mean)
    summed = op.ReduceSum(op.Mul(apart, apart), [*listed, count], keepdims=1)
    freedom = op.Sub(elements, number(1.0 if correction is None else float(correction)))
    variance = op.Squeeze(op.Div(summed, op.Max(freedom, number(0.0))), [count])
    if listed and not keepdim:
        variance, mean = op.Squeeze(variance, listed), op.Squeeze(mean, listed)
    real = ir.DataType.FLOAT if self.dtype == ir.DataType.FLOAT else ir.DataType.DOUBLE
    return op.Cast(variance, to=real), op.Cast(mean, to=real)


@lowering("aten::var.correction", is_complex=True)
def variance(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> RecordedValue:
    """The mean square distance from the mean."""
    return _variance(self, dim, correction, keepdim)[0]


@lowering("aten::std.correction", is_complex=True)
def deviation(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> RecordedValue:
    """The root of the variance."""
    return op.Sqrt(_variance(self, dim, correction, keepdim)[0])


@lowering("aten::var_mean.correction", is_complex=True)
def variance_and_mean(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> formulas.Parts:
    """The variance and the mean."""
    return _variance(self, dim, correction, keepdim)


@lowering("aten::std_mean.correction", is_complex=True)
def deviation_and_mean(
    self: ir.Value, dim: Sequence[int] | None = None, correction: float | None = None, keepdim: bool = False
) -> formulas.Parts:
    """The deviation and the mean."""
    found, mean = _variance(self, dim, correction, keepdim)
    return op.Sqrt(found), mean
