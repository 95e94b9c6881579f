"""Products of Householder's reflections as LAPACK keeps them: vectors below a diagonal, and a factor for each.

Source: LAPACK's geqrf, orgqr and ormqr (a reflection is I - tau v v', where v is 1 on the diagonal and 0 above it).
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.matrices import (
    Matrices,
    column_at,
    identity,
    length_of,
    merged_vectors,
    numbers_along,
    row_at,
    smaller,
    with_axes_swapped,
)


def _product(matrices: Matrices, factors: ir.Value, count: Size) -> ir.Value:
    """All reflections after one another: `float[batch, rows, rows]`."""
    numbers = numbers_along(matrices.rows, [1, -1, 1])
    merged = op.Unsqueeze(merged_vectors(factors), [1])

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        (product,) = states
        zero, one = op.CastLike(0.0, product), op.CastLike(1.0, product)
        below = op.Where(op.Greater(numbers, index), column_at(matrices.data, index), zero)
        vector = op.Where(op.Equal(numbers, index), one, below)
        scaled = op.Mul(op.MatMul(product, vector), column_at(merged, index))
        return [op.Sub(product, op.MatMul(scaled, with_axes_swapped(vector)))]

    return loops.count(count, step, [identity(matrices.data, matrices.rows)])[0]


@lowering("aten::linalg_householder_product", "aten::orgqr")
def linalg_householder_product(input: ir.Value, tau: ir.Value) -> RecordedValue:
    """The first columns of the product, as many as the matrices have."""
    matrices = Matrices(input)
    product = _product(matrices, tau, length_of(tau, -1))
    stop = [matrices.columns] if isinstance(matrices.columns, int) else op.Reshape(matrices.columns, [1])
    return matrices.restored(op.Slice(product, [0], stop, [2]))


@lowering("aten::ormqr")
def ormqr(
    self: ir.Value, input2: ir.Value, input3: ir.Value, left: bool = True, transpose: bool = False
) -> RecordedValue:
    """The product, or its transpose, times other matrices, from the left or the right."""
    matrices, side = Matrices(self), Matrices(input3)
    product = _product(matrices, input2, length_of(input2, -1))
    product = with_axes_swapped(product) if transpose else product
    made = op.MatMul(product, side.data) if left else op.MatMul(side.data, product)
    return side.restored(made)


@lowering("aten::geqrf")
def geqrf(self: ir.Value) -> tuple[RecordedValue, ...]:
    """R with the vectors of the reflections below it, and their factors."""
    matrices = Matrices(self)
    count = smaller(matrices.rows, matrices.columns)
    numbers, columns = numbers_along(matrices.rows, [1, -1, 1]), numbers_along(matrices.columns, [1, 1, -1])
    places = numbers_along(count, [1, -1])
    start = op.Expand(
        op.CastLike(0.0, self), op.Concat(op.Shape(matrices.data, end=1), op.Shape(places, start=1), axis=0)
    )
    axes.shaped(start, [None, count if isinstance(count, int) else None])

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        reduced, found = states
        zero, one = op.CastLike(0.0, reduced), op.CastLike(1.0, reduced)
        column = column_at(reduced, index)
        head = row_at(column, index)
        tail = op.Where(op.Greater(numbers, index), column, zero)
        beyond = op.ReduceSum(op.Mul(tail, tail), [1], keepdims=1)
        is_done = op.Equal(beyond, zero)
        length = op.Sqrt(op.Add(beyond, op.Mul(head, head)))
        beta = op.Where(op.Less(head, zero), length, op.Neg(length))
        beta = op.Where(is_done, head, beta)
        factor = op.Where(is_done, zero, op.Div(op.Sub(beta, head), op.Where(op.Equal(beta, zero), one, beta)))
        scale = op.Where(is_done, one, op.Sub(head, beta))
        vector = op.Where(op.Equal(numbers, index), one, op.Div(tail, scale))
        right = op.Where(op.Greater(columns, index), reduced, zero)
        change = op.Mul(factor, op.MatMul(vector, op.MatMul(with_axes_swapped(vector), right)))
        own = op.Where(op.Less(numbers, index), column, op.Where(op.Equal(numbers, index), beta, vector))
        reduced = op.Where(op.Equal(columns, index), own, op.Sub(reduced, change))
        return [reduced, op.Where(op.Equal(places, index), op.Squeeze(factor, [2]), found)]

    reduced, factors = loops.count(count, step, [matrices.data, start])
    return matrices.restored(reduced), matrices.restored(factors, 1)
