"""Products of complex numbers along an axis, all at once and running, one factor after the other in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.complex_parts import joined, part
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import ComplexNumber, RecordedValue
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.complex_numbers import in_dtype, multiply, of_pairs
from batch_export.exporter.ops.marking import lowering


def _products(pairs: ir.Value) -> tuple[RecordedValue, RecordedValue]:
    """The product of all slices along the first axis, and those of the first one, two, three, ..."""
    wide = axes.shaped(op.Cast(pairs, to=ir.DataType.DOUBLE), pairs.shape)
    one = op.Constant(value=ir.tensor(np.array([1.0, 0.0])))
    start = op.Expand(one, op.Shape(pairs, start=1))
    axes.shaped(start, list(pairs.shape or ())[1:])

    def step(
        states: Sequence[ir.Value], slices: Sequence[ir.Value]
    ) -> tuple[Sequence[RecordedValue], Sequence[RecordedValue]]:
        (a, b), (c, d) = ([part(one, which) for which in (0, 1)] for one in (states[0], slices[0]))
        product = joined(op.Sub(op.Mul(a, c), op.Mul(b, d)), op.Add(op.Mul(a, d), op.Mul(b, c)))
        return [product], [product]

    (last,), (running,) = loops.scan(step, [start], [loops.lengthened(wide)], [ir.DataType.DOUBLE])
    if axes.fixed_size(pairs, 0):
        return op.CastLike(last, pairs), op.CastLike(running, pairs)
    there = loops.shortened(running, wide)
    whole = op.Squeeze(op.Slice(op.Concat(op.Unsqueeze(start, [0]), there, axis=0), [-1], [2**62], [0]), [0])
    return op.CastLike(whole, pairs), op.CastLike(there, pairs)


def _moved(pairs: ir.Value, dim: int) -> tuple[ir.Value, list[int]]:
    """An axis of the complex numbers at the front, and the order that puts it back."""
    count = axes.rank(pairs) - 1
    order = [dim % count, *(other for other in range(count + 1) if other != dim % count)]
    moved = op.Transpose(pairs, perm=order)
    axes.shaped(moved, None if pairs.shape is None else [pairs.shape[other] for other in order])
    return moved, [order.index(place) for place in range(count + 1)]


@lowering("aten::cumprod", is_complex=True)
def cumprod(self: ir.Value, dim: int, dtype: int = -1) -> ir.Value:
    """The products of the elements so far along an axis."""
    pairs = in_dtype(self, dtype)
    if axes.rank(pairs) == 1:
        return pairs
    moved, back = _moved(pairs, dim)
    return op.Transpose(_products(moved)[1], perm=back)


@lowering("aten::prod.dim_int", is_complex=True)
def prod_along(self: ir.Value, dim: int, keepdim: bool = False, dtype: int = -1) -> ir.Value:
    """The product along one axis."""
    pairs = in_dtype(self, dtype)
    count = axes.rank(pairs) - 1
    if count == 0:
        return pairs
    found = _products(_moved(pairs, dim)[0])[0]
    return op.Unsqueeze(found, [dim % count]) if keepdim else found


@lowering("aten::prod", is_complex=True)
def prod(self: ir.Value, dtype: int = -1) -> ir.Value:
    """The product of all elements."""
    pairs = in_dtype(self, dtype)
    if axes.rank(pairs) == 1:
        return pairs
    sizes = list(pairs.shape or ())[:-1]
    known = [size for size in sizes if isinstance(size, int)]
    count = int(np.prod(known)) if pairs.shape is not None and len(known) == len(sizes) else None
    return _products(axes.shaped(op.Reshape(pairs, [-1, 2]), [count, 2]))[0]


@lowering("aten::baddbmm", is_complex=True)
def baddbmm(
    self: ir.Value, batch1: ir.Value, batch2: ir.Value, beta: ComplexNumber = 1.0, alpha: ComplexNumber = 1.0
) -> RecordedValue:
    """beta * self + alpha * batch1 @ batch2, of batches of matrices."""
    return _added(self, _matrix_product(batch1, batch2), beta, alpha)


@lowering("aten::addbmm", is_complex=True)
def addbmm(
    self: ir.Value, batch1: ir.Value, batch2: ir.Value, beta: ComplexNumber = 1.0, alpha: ComplexNumber = 1.0
) -> RecordedValue:
    """beta * self + alpha * the sum of a batch of products."""
    return _added(self, op.ReduceSum(_matrix_product(batch1, batch2), [0], keepdims=0), beta, alpha)


def _added(self: ir.Value, product: RecordedValue, beta: ComplexNumber, alpha: ComplexNumber) -> RecordedValue:
    """With a beta of 0 nothing of self is read."""
    of_nothing = op.CastLike(0, product)
    added = of_nothing if not isinstance(beta, ir.Value) and beta == 0 else multiply(self, beta)
    return op.Add(multiply(of_pairs(product), alpha), added)


def _matrix_product(left: ir.Value, right: ir.Value) -> RecordedValue:
    (a, b), (c, d) = ([part(one, which) for which in (0, 1)] for one in (left, right))
    products = op.MatMul(a, c), op.MatMul(b, d), op.MatMul(a, d), op.MatMul(b, c)
    return joined(op.Sub(products[0], products[1]), op.Add(products[2], products[3]))
