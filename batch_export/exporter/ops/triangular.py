"""Triangular systems by substitution, and Cholesky's factor, one row or column at a time.

Algorithms: Golub and Van Loan, Matrix Computations, chapters 3 and 4.
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
    first_failure,
    identity,
    in_one_batch,
    numbers_along,
    row_at,
    with_axes_swapped,
    zeros_like,
)


def substitute(data: ir.Value, rows: Size, right: ir.Value, *, upper: bool, unit: bool) -> ir.Value:
    """Solves triangular systems: `float[batch, n, n]` and `float[batch, n, k]` to `float[batch, n, k]`."""
    numbers = numbers_along(rows, [1, -1, 1])

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        (found,) = states
        at = op.Sub(op.Sub(rows, 1), index) if upper else index
        row = row_at(data, at)
        rest = op.Sub(row_at(right, at), op.MatMul(row, found))
        if not unit:
            rest = op.Div(rest, column_at(row, at))
        return [op.Where(op.Equal(numbers, at), rest, found)]

    triangle = op.Trilu(data, None, upper=int(upper))
    axes.shaped(triangle, data.shape)
    data = triangle
    return loops.count(rows, step, [zeros_like(right)])[0]


def cholesky_factor(data: ir.Value, rows: Size) -> ir.Value:
    """The lower factor of positive definite matrices."""
    row_numbers, column_numbers = numbers_along(rows, [1, -1, 1]), numbers_along(rows, [1, 1, -1])

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        (factor,) = states
        rest = op.Sub(column_at(data, index), op.MatMul(factor, with_axes_swapped(row_at(factor, index))))
        column = op.Div(rest, op.Sqrt(row_at(rest, index)))
        below = op.GreaterOrEqual(row_numbers, index)
        return [op.Where(op.And(op.Equal(column_numbers, index), below), column, factor)]

    return loops.count(rows, step, [zeros_like(data)])[0]


@lowering("aten::linalg_cholesky_ex")
def linalg_cholesky_ex(self: ir.Value, upper: bool = False, check_errors: bool = False) -> tuple[RecordedValue, ...]:
    """The factor of positive definite matrices, and the first row, from 1, that is none's."""
    matrices = Matrices(self)
    source = with_axes_swapped(matrices.data) if upper else matrices.data
    factor = cholesky_factor(source, matrices.rows)
    return matrices.restored(with_axes_swapped(factor) if upper else factor), first_failure(matrices, op.IsNaN(factor))


@lowering("aten::cholesky", "aten::linalg_cholesky")
def cholesky(self: ir.Value, upper: bool = False) -> RecordedValue:
    """The factor of positive definite matrices."""
    return linalg_cholesky_ex(self, upper)[0]


@lowering("aten::cholesky_solve")
def cholesky_solve(self: ir.Value, input2: ir.Value, upper: bool = False) -> RecordedValue:
    """Solves A X = B from A's Cholesky factor."""
    factor, side = map(Matrices, in_one_batch(input2, self))
    lower = with_axes_swapped(factor.data) if upper else factor.data
    forward = substitute(lower, factor.rows, side.data, upper=False, unit=False)
    return side.restored(substitute(with_axes_swapped(lower), factor.rows, forward, upper=True, unit=False))


@lowering("aten::cholesky_inverse")
def cholesky_inverse(self: ir.Value, upper: bool = False) -> RecordedValue:
    """The inverse of A from A's Cholesky factor."""
    factor = Matrices(self)
    lower = with_axes_swapped(factor.data) if upper else factor.data
    forward = substitute(lower, factor.rows, identity(factor.data, factor.rows), upper=False, unit=False)
    return factor.restored(substitute(with_axes_swapped(lower), factor.rows, forward, upper=True, unit=False))


@lowering("aten::linalg_solve_triangular")
def linalg_solve_triangular(
    self: ir.Value,
    B: ir.Value,  # noqa: N803
    upper: bool = False,
    left: bool = True,
    unitriangular: bool = False,
) -> RecordedValue:
    """Solves A X = B (or X A = B) for triangular A; leading axes are broadcast."""
    matrices, side = map(Matrices, in_one_batch(self, B))
    if left:
        return side.restored(substitute(matrices.data, matrices.rows, side.data, upper=upper, unit=unitriangular))
    solved = substitute(
        with_axes_swapped(matrices.data),
        matrices.rows,
        with_axes_swapped(side.data),
        upper=not upper,
        unit=unitriangular,
    )
    return side.restored(with_axes_swapped(solved))


@lowering("aten::triangular_solve")
def triangular_solve(
    self: ir.Value,
    A: ir.Value,  # noqa: N803
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[RecordedValue, ...]:
    """The solution of A X = self for triangular A, and A."""
    A, side = in_one_batch(A, self)  # noqa: N806
    matrices = A
    if transpose:
        order = [*range(axes.rank(A) - 2), axes.rank(A) - 1, axes.rank(A) - 2]
        matrices = op.Transpose(A, perm=order)
        assert A.shape is not None
        axes.shaped(matrices, [list(A.shape)[place] for place in order])
    solved = linalg_solve_triangular(matrices, side, upper != transpose, True, unitriangular)
    return solved, op.Identity(A)
