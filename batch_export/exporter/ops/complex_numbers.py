"""Arithmetic of complex numbers, stored as pairs of real ones, with each other, with real tensors and with numbers.

A real operand has no last axis of pairs: adding it to the pairs as it stands would add it to the imaginary parts too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

import onnx_ir as ir

from batch_export.exporter.graph.complex_parts import PARTS, is_pair, joined, mark, paired, part
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import ComplexNumber, RecordedValue
from batch_export.exporter.ops import axes, signs
from batch_export.exporter.ops.marking import lowering


def _both(self: ComplexNumber, other: ComplexNumber) -> tuple[ir.Value, ir.Value]:
    like = self if is_pair(self) else other
    assert isinstance(like, ir.Value)
    return paired(self, like), paired(other, like)


def of_pairs(found: ComplexNumber) -> ir.Value:
    """A value on the way, said to be pairs."""
    assert isinstance(found, ir.Value)
    mark(found)
    return found


def _scaled(pairs: ComplexNumber, number: float | ir.Value) -> RecordedValue:
    """Pairs times a real tensor or a number."""
    if isinstance(number, ir.Value):
        return op.Mul(pairs, op.Unsqueeze(op.CastLike(number, pairs), [-1]))
    return op.Mul(pairs, op.CastLike(float(number), pairs))


def _times(pairs: ir.Value, number: ComplexNumber) -> RecordedValue:
    """Pairs, which need not be marked as such, times a number."""
    if not isinstance(number, complex):
        return _scaled(pairs, number)
    turned = joined(op.Neg(part(pairs, 1)), part(pairs, 0))
    return op.Add(_scaled(pairs, number.real), _scaled(turned, number.imag))


def _is_real(value: object) -> TypeGuard[float | ir.Value]:
    return not is_pair(value) and not isinstance(value, complex)


@lowering("aten::sum", "aten::sum.dim_IntList", is_complex=True)
def total(self: ir.Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1) -> RecordedValue:
    """The sum over axes; a single number is its own, and its two parts are no axis to add up."""
    whole = in_dtype(self, dtype)
    reduced = _reduced(whole, dim)
    return op.ReduceSum(whole, reduced, keepdims=int(keepdim)) if reduced else op.Identity(whole)


@lowering("aten::mean", "aten::mean.dim", is_complex=True)
def mean(self: ir.Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1) -> RecordedValue:
    """The mean over axes, as `total`."""
    whole = in_dtype(self, dtype)
    reduced = _reduced(whole, dim)
    return op.ReduceMean(whole, reduced, keepdims=int(keepdim)) if reduced else op.Identity(whole)


def _reduced(pairs: ir.Value, dim: Sequence[int] | int | None) -> list[int]:
    """The axes to reduce, all where none is named; the last axis is that of the pairs."""
    count = axes.rank(pairs) - 1
    listed = [dim] if isinstance(dim, int) else list(dim or range(count))
    return [axis % count for axis in listed] if count else []


def in_dtype(pairs: ir.Value, dtype: int) -> ir.Value:
    """Pairs of the parts of another complex dtype."""
    if dtype in (-1, None):
        return pairs
    wide = ir.DataType.DOUBLE if dtype == ir.DataType.COMPLEX128 else ir.DataType.FLOAT
    return axes.shaped(op.Cast(pairs, to=wide), pairs.shape)


@lowering("aten::add.Tensor", "aten::add.Scalar", is_complex=True)
def add(self: ComplexNumber, other: ComplexNumber, alpha: ComplexNumber = 1) -> RecordedValue:
    """self + alpha * other."""
    left, right = _both(self, other)
    return op.Add(left, right if alpha == 1 else _times(right, alpha))


@lowering("aten::sub.Tensor", "aten::sub.Scalar", "aten::subtract.Tensor", "aten::subtract.Scalar", is_complex=True)
def subtract(self: ComplexNumber, other: ComplexNumber, alpha: ComplexNumber = 1) -> RecordedValue:
    """self - alpha * other."""
    left, right = _both(self, other)
    return op.Sub(left, right if alpha == 1 else _times(right, alpha))


@lowering("aten::rsub.Tensor", "aten::rsub.Scalar", is_complex=True)
def subtract_from(self: ComplexNumber, other: ComplexNumber, alpha: ComplexNumber = 1) -> RecordedValue:
    """other - alpha * self."""
    return subtract(other, self, alpha)


@lowering("aten::mul.Tensor", "aten::mul.Scalar", "aten::multiply.Tensor", "aten::multiply.Scalar", is_complex=True)
def multiply(self: ComplexNumber, other: ComplexNumber) -> ComplexNumber:
    """The product; a real factor scales both parts."""
    if not isinstance(self, ir.Value) and not isinstance(other, ir.Value):
        return self * other
    if _is_real(other) and (is_pair(self) or not is_pair(other)):
        return _scaled(self, other) if is_pair(self) else op.Mul(self, other)
    if _is_real(self):
        return _scaled(other, self)
    left, right = _both(self, other)
    real, imaginary = ([op.Slice(value, [which], [which + 1], [-1]) for value in (left, right)] for which in (0, 1))
    return op.Concat(
        op.Sub(op.Mul(*real), op.Mul(*imaginary)),
        op.Add(op.Mul(real[0], imaginary[1]), op.Mul(imaginary[0], real[1])),
        axis=-1,
    )


@lowering(
    "aten::div.Tensor", "aten::div.Scalar", "aten::true_divide.Tensor", "aten::true_divide.Scalar", is_complex=True
)
@lowering("aten::divide.Tensor", "aten::divide.Scalar", is_complex=True)
def divide(self: ComplexNumber, other: ComplexNumber) -> RecordedValue:
    """The quotient; a real divisor scales both parts."""
    if _is_real(other):
        divisor = op.Unsqueeze(op.CastLike(other, self), [-1]) if isinstance(other, ir.Value) else float(other)
        return op.Div(self, divisor if isinstance(divisor, ir.Value) else op.CastLike(divisor, self))
    left, right = _both(self, other)
    z, w = ([op.Slice(value, [which], [which + 1], [-1]) for which in (0, 1)] for value in (left, right))
    return op.Concat(*quotient((z[0], z[1]), (w[0], w[1])), axis=-1)


def quotient(z: tuple[ir.Value, ir.Value], w: tuple[ir.Value, ir.Value]) -> tuple[RecordedValue, RecordedValue]:
    """The parts of z / w: beside an infinite part of w a finite one is nothing, and by 0 each part of z is divided."""
    (a, b), (c, d) = z, w
    larger = op.Max(op.Abs(c), op.Abs(d))  # squares of the parts over this neither overflow nor vanish
    c, d = (_part_over(one, larger) for one in (c, d))
    larger = op.Where(op.And(op.IsInf(larger), op.Equal(op.Abs(c), op.Abs(d))), axes.like(math.nan, larger), larger)
    size = op.Add(op.Mul(c, c), op.Mul(d, d))
    real = op.Div(op.Div(op.Add(op.Mul(a, c), op.Mul(b, d)), size), larger)
    imaginary = op.Div(op.Div(op.Sub(op.Mul(b, c), op.Mul(a, d)), size), larger)
    is_nothing = op.Equal(larger, axes.like(0.0, larger))
    return op.Where(is_nothing, op.Div(a, larger), real), op.Where(is_nothing, op.Div(b, larger), imaginary)


@lowering("aten::reciprocal", "prims::reciprocal", is_complex=True)
def reciprocal(self: ir.Value) -> RecordedValue:
    """One over the number."""
    return divide(complex(1.0), self)


def _part_over(part_of: ir.Value, larger: ir.Value) -> RecordedValue:
    """A part of a number over its larger one; beside an infinite part a finite one is nothing."""
    infinite = op.Where(op.IsInf(part_of), op.Sign(part_of), axes.like(0.0, part_of))
    return op.Where(op.IsInf(larger), infinite, op.Div(part_of, larger))


@lowering("aten::lerp.Tensor", "aten::lerp.Scalar", is_complex=True)
def lerp(self: ComplexNumber, end: ComplexNumber, weight: ComplexNumber) -> RecordedValue:
    """From one number towards another; from a weight of length 1/2 on it is measured from the end, as in torch."""
    distance = of_pairs(subtract(end, self))
    if not isinstance(weight, ir.Value):
        if abs(complex(weight)) < 0.5:
            return add(self, of_pairs(multiply(distance, weight)))
        return subtract(end, of_pairs(multiply(distance, 1 - weight)))
    factor = of_pairs(paired(weight, distance))
    near = add(self, of_pairs(multiply(distance, factor)))
    far = subtract(end, of_pairs(multiply(distance, of_pairs(subtract(1.0, factor)))))
    squares = op.ReduceSumSquare(factor, [-1], keepdims=1)
    return op.Where(op.Less(squares, op.CastLike(0.25, squares)), near, far)


@lowering("aten::where.self", is_complex=True)
def where(condition: RecordedValue, self: ComplexNumber, other: ComplexNumber) -> RecordedValue:
    """One of two numbers by a condition for each."""
    left, right = _both(self, other)
    return op.Where(op.Unsqueeze(condition, [-1]), left, right)


@lowering("aten::masked_fill.Scalar", "aten::masked_fill.Tensor", is_complex=True)
def masked_fill(self: RecordedValue, mask: RecordedValue, value: ComplexNumber) -> RecordedValue:
    """One number where the mask is true."""
    return op.Where(op.Unsqueeze(mask, [-1]), paired(value, self), self)


@lowering("aten::eq.Tensor", "aten::eq.Scalar", is_complex=True)
def equal(self: ComplexNumber, other: ComplexNumber) -> RecordedValue:
    """Whether both parts are equal."""
    left, right = _both(self, other)
    return op.And(*(op.Equal(part(left, which), part(right, which)) for which in (0, 1)))


@lowering("aten::ne.Tensor", "aten::ne.Scalar", is_complex=True)
def not_equal(self: ComplexNumber, other: ComplexNumber) -> RecordedValue:
    """Whether one part differs."""
    return op.Not(equal(self, other))


@lowering("aten::isnan", is_complex=True)
def is_nan(self: RecordedValue) -> RecordedValue:
    """Whether one part is NaN."""
    return op.Or(*(op.IsNaN(part(self, which)) for which in (0, 1)))


@lowering("aten::exp", is_complex=True)
def exponential(self: RecordedValue) -> RecordedValue:
    """exp(a) (cos b + i sin b), where a product would be NaN as C has it.

    exp(-inf) is 0 in whatever direction, and the real part of exp(inf) infinite; of a real number exp is real, also
    where it is infinite. What may be a zero with a sign stands last in a Where: onnxruntime's loses that of the other.
    """
    length, angle = part(self, 0), part(self, 1)
    size, cosine = op.Exp(length), op.Cos(angle)
    edge = op.Where(op.IsInf(length), size, op.CastLike(math.nan, length))
    real = op.Where(op.IsNaN(cosine), edge, op.Mul(size, cosine))
    height = op.Where(op.Equal(angle, op.CastLike(0.0, length)), op.CastLike(1.0, length), size)
    sine, zero = op.Sin(angle), op.CastLike(0.0, length)
    is_nowhere = op.And(op.IsNaN(sine), op.Equal(size, zero))
    return joined(real, op.Where(is_nowhere, zero, op.Mul(height, sine)))


@lowering("aten::angle", is_complex=True)
def angle(self: ir.Value) -> RecordedValue:
    """The angle, by the signs of zeros where both parts are 0, and of infinities.

    Of a spectrum zeros have no sign: onnxruntime's kernel gives -0.0 for silence, of which the angle would be pi.
    """
    real = part(self, 0)
    if _is_spectrum(self):
        zero = op.CastLike(0.0, real)
        real = op.Where(op.Equal(real, zero), zero, real)
    return signs.atan2(part(self, 1), real)


_REARRANGING = frozenset(("Cast", "Where", "Slice", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Gather", "Concat"))


def _is_spectrum(value: ir.Value) -> bool:
    """Whether numbers are those of a Fourier transform as they are, in whatever order."""
    producer = value.producer()
    if producer is None:
        return False
    if producer.op_type in ("DFT", "STFT"):
        return True
    return producer.op_type in _REARRANGING and any(_is_spectrum(one) for one in producer.inputs if one is not None)


@lowering("aten::fill.Scalar", "aten::fill.Tensor", is_complex=True)
def fill(self: ir.Value, value: ComplexNumber) -> RecordedValue:
    """One number, real or complex, in the shape of a complex tensor."""
    return op.Expand(paired(value, self), op.Shape(self))


@lowering("aten::to.dtype", "aten::to.dtype_layout", is_complex=True)
def to_dtype(self: ir.Value, dtype: int = -1) -> RecordedValue:
    """A complex tensor in another precision; a real dtype keeps the real parts, and bool what is not 0."""
    if dtype == -1:
        return op.Identity(self)
    parts = PARTS.get(ir.DataType(dtype))
    if dtype == ir.DataType.BOOL:
        return not_equal(self, 0)
    return op.Cast(part(self, 0), to=dtype) if parts is None else op.Cast(self, to=parts)


@lowering("aten::to.device", is_complex=True)
def to_device(self: ir.Value, device: str = "", dtype: int = -1) -> RecordedValue:
    """`to_dtype`; ONNX files do not name devices."""
    return to_dtype(self, dtype)
