"""LU with partial pivoting, one column at a time, and what follows from it: inverses, solutions, determinants.

Algorithm: Golub and Van Loan, Matrix Computations, chapter 3.
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
    columns_of,
    first_failure,
    identity,
    in_one_batch,
    merged_vectors,
    numbers_along,
    right_side,
    row_at,
    smaller,
    with_axes_swapped,
)
from batch_export.exporter.ops.triangular import substitute


def lu(data: ir.Value, rows: Size, columns: Size) -> tuple[ir.Value, ir.Value, ir.Value]:
    """LU with partial pivoting: both factors in one `float[batch, rows, columns]`, the row order, the pivots from 1."""
    row_numbers, column_numbers = numbers_along(rows, [1, -1]), numbers_along(columns, [1, 1, -1])
    steps = smaller(rows, columns)
    batch = op.Shape(data, end=1)
    order = op.Expand(row_numbers, op.Concat(batch, op.Shape(data, start=1, end=2), axis=0))
    axes.shaped(order, [None, rows if isinstance(rows, int) else None])
    pivots = op.Expand(op.Constant(value_ints=[0]), op.Shape(order))
    axes.shaped(pivots, order.shape)

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        matrix, rows_order, chosen = states
        magnitude = op.Abs(op.Gather(matrix, index, axis=2))
        candidates = op.Where(op.Less(row_numbers, index), op.CastLike(-1.0, magnitude), magnitude)
        pivot = op.ArgMax(candidates, axis=1, keepdims=1)
        swapped = op.Where(
            op.Equal(row_numbers, index), pivot, op.Where(op.Equal(row_numbers, pivot), index, row_numbers)
        )
        rows_order = op.GatherElements(rows_order, swapped, axis=1)
        spread = op.Add(op.Unsqueeze(swapped, [2]), op.Mul(column_numbers, 0))
        matrix = op.GatherElements(matrix, spread, axis=1)
        pivot_row = row_at(matrix, index)
        pivot_value = op.Gather(pivot_row, index, axis=2)
        zero, one = op.CastLike(0.0, matrix), op.CastLike(1.0, matrix)
        safe = op.Unsqueeze(op.Where(op.Equal(pivot_value, zero), one, pivot_value), [2])
        below = op.Unsqueeze(op.Greater(row_numbers, index), [2])
        factors = op.Where(below, op.Div(column_at(matrix, index), safe), zero)
        right = op.Greater(column_numbers, index)
        reduced = op.Sub(matrix, op.Mul(factors, op.Where(right, pivot_row, zero)))
        at = op.And(op.Equal(column_numbers, index), below)
        chosen = op.Where(op.Equal(row_numbers, index), op.Add(pivot, 1), chosen)
        return op.Where(at, factors, reduced), rows_order, chosen

    packed, permuted, chosen = loops.count(steps, step, [data, order, pivots])
    return packed, permuted, chosen


def _solved(packed: ir.Value, order: ir.Value, rows: Size, right: ir.Value) -> ir.Value:
    spread = op.Add(op.Unsqueeze(order, [2]), op.Mul(op.Unsqueeze(numbers_along(columns_of(right), [1, -1]), [1]), 0))
    permuted = op.GatherElements(right, spread, axis=1)
    axes.shaped(permuted, right.shape)
    forward = substitute(packed, rows, permuted, upper=False, unit=True)
    return substitute(packed, rows, forward, upper=True, unit=False)


def _zero_pivot(matrices: Matrices, packed: ir.Value) -> RecordedValue:
    """The first pivot that is zero, from 1; 0 where none is."""
    return first_failure(matrices, op.Equal(packed, op.CastLike(0.0, packed)))


@lowering("aten::linalg_inv_ex")
def linalg_inv_ex(A: ir.Value, check_errors: bool = False) -> tuple[RecordedValue, ...]:  # noqa: N803
    """The inverse; and where a pivot is zero, from 1."""
    matrices = Matrices(A)
    packed, order, _ = lu(matrices.data, matrices.rows, matrices.rows)
    solved = _solved(packed, order, matrices.rows, identity(matrices.data, matrices.rows))
    return matrices.restored(solved), _zero_pivot(matrices, packed)


@lowering("aten::linalg_inv", "aten::inverse")
def linalg_inv(A: ir.Value) -> RecordedValue:  # noqa: N803
    """The inverse."""
    return linalg_inv_ex(A)[0]


@lowering("aten::_linalg_solve_ex")
def linalg_solve_ex(
    A: ir.Value,  # noqa: N803
    B: ir.Value,  # noqa: N803
    left: bool = True,
    check_errors: bool = False,
) -> tuple[RecordedValue, ...]:
    """The solution of A X = B (or X A = B), the factors, the pivots and where one is zero, from 1."""
    matrices = Matrices(A)
    packed, order, pivots = lu(matrices.data, matrices.rows, matrices.rows)
    right, is_vector = right_side(A, B)
    spread, side = in_one_batch(A, right)
    whole = matrices if spread is A else Matrices(spread)
    if not left:
        other_packed, other_order, _ = lu(with_axes_swapped(whole.data), whole.rows, whole.rows)
        right = with_axes_swapped(Matrices(side).data)
        solved = whole.restored(with_axes_swapped(_solved(other_packed, other_order, whole.rows, right)))
    else:
        other_packed, other_order = packed, order
        if whole is not matrices:
            other_packed, other_order, _ = lu(whole.data, whole.rows, whole.rows)
        solved = whole.restored(_solved(other_packed, other_order, whole.rows, Matrices(side).data))
    solved = op.Squeeze(solved, [-1]) if is_vector else solved
    made = op.Cast(matrices.restored(pivots, 1), to=ir.DataType.INT32)
    return solved, matrices.restored(packed), made, _zero_pivot(matrices, packed)


@lowering("aten::linalg_lu_factor_ex")
def linalg_lu_factor_ex(A: ir.Value, pivot: bool = True, check_errors: bool = False) -> tuple[RecordedValue, ...]:  # noqa: N803
    """Both factors in one matrix, the pivots from 1, and where one is zero, from 1."""
    matrices = Matrices(A)
    packed, _, pivots = lu(matrices.data, matrices.rows, matrices.columns)
    count = smaller(matrices.rows, matrices.columns)
    made = op.Slice(pivots, [0], [count] if isinstance(count, int) else op.Reshape(count, [1]), [1])
    return (
        matrices.restored(packed),
        op.Cast(matrices.restored(made, 1), to=ir.DataType.INT32),
        _zero_pivot(matrices, packed),
    )


def _unpacked(packed: ir.Value, rows: Size, columns: Size) -> tuple[RecordedValue, RecordedValue]:
    count = smaller(rows, columns)
    stop = [count] if isinstance(count, int) else op.Reshape(count, [1])
    lower = op.Trilu(op.Slice(packed, [0], stop, [2]), -1, upper=0)
    diagonal = op.Equal(numbers_along(rows, [1, -1, 1]), numbers_along(count, [1, 1, -1]))
    lower = op.Add(lower, op.CastLike(diagonal, packed))
    return lower, op.Trilu(op.Slice(packed, [0], stop, [1]), None, upper=1)


def _permutation(order: ir.Value, rows: Size, like: ir.Value) -> RecordedValue:
    """P with P[order[i], i] = 1, so that A = P L U."""
    return op.CastLike(op.Equal(op.Unsqueeze(order, [1]), numbers_along(rows, [1, -1, 1])), like)


@lowering("aten::linalg_lu")
def linalg_lu(A: ir.Value, pivot: bool = True) -> tuple[ir.Value, ...]:  # noqa: N803
    """P, L and U with A = P L U."""
    matrices = Matrices(A)
    packed, order, _ = lu(matrices.data, matrices.rows, matrices.columns)
    lower, upper = _unpacked(packed, matrices.rows, matrices.columns)
    permutation = _permutation(order, matrices.rows, packed)
    return tuple(matrices.restored(part) for part in (permutation, lower, upper))


def _order_of(pivots: ir.Value, rows: Size) -> ir.Value:
    """The row order that swaps (from 1) make: `int[batch, k]` to `int64[batch, rows]`."""
    numbers = numbers_along(rows, [1, -1])
    wide = op.Cast(pivots, to=ir.DataType.INT64)
    start = op.Expand(numbers, op.Concat(op.Shape(wide, end=1), op.Shape(numbers, start=1), axis=0))
    axes.shaped(start, [None, rows if isinstance(rows, int) else None])
    steps = op.Squeeze(op.Shape(wide, start=1), [0])

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        other = op.Sub(op.Unsqueeze(op.Gather(wide, index, axis=1), [1]), 1)
        swapped = op.Where(op.Equal(numbers, index), other, op.Where(op.Equal(numbers, other), index, numbers))
        return [op.GatherElements(states[0], swapped, axis=1)]

    return loops.count(steps, step, [start])[0]


@lowering("aten::lu_unpack")
def lu_unpack(
    LU_data: ir.Value,  # noqa: N803
    LU_pivots: ir.Value,  # noqa: N803
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[ir.Value, ...]:
    """P, L and U from what `lu_factor` gives; empty where not asked for."""
    matrices = Matrices(LU_data)
    nothing = op.CastLike(op.Constant(value=ir.tensor([], dtype=ir.DataType.FLOAT)), LU_data)
    permutation, lower, upper = nothing, nothing, nothing
    if unpack_pivots:
        order = _order_of(merged_vectors(LU_pivots), matrices.rows)
        permutation = matrices.restored(_permutation(order, matrices.rows, matrices.data))
    if unpack_data:
        lower, upper = (matrices.restored(part) for part in _unpacked(matrices.data, matrices.rows, matrices.columns))
    return permutation, lower, upper


def _factors(matrices: Matrices) -> tuple[RecordedValue, RecordedValue, RecordedValue, RecordedValue]:
    """Both factors in one and the pivots, as results; the diagonal, and -1 for each row that was swapped, else 1."""
    packed, _, pivots = lu(matrices.data, matrices.rows, matrices.rows)
    zero, one = op.CastLike(0.0, packed), op.CastLike(1.0, packed)
    on = op.Equal(numbers_along(matrices.rows, [1, -1, 1]), numbers_along(matrices.rows, [1, 1, -1]))
    diagonal = op.ReduceSum(op.Where(on, packed, zero), [2], keepdims=0)
    moved = op.Not(op.Equal(pivots, op.Add(numbers_along(matrices.rows, [1, -1]), 1)))
    swapped = op.Cast(matrices.restored(pivots, 1), to=ir.DataType.INT32)
    return matrices.restored(packed), diagonal, op.Where(moved, op.Neg(one), one), swapped


@lowering("aten::_linalg_slogdet")
def linalg_slogdet(A: ir.Value) -> tuple[ir.Value, ...]:  # noqa: N803
    """The determinant's sign and the logarithm of its size, the factors and the pivots."""
    matrices = Matrices(A)
    packed, diagonal, turns, pivots = _factors(matrices)
    signs = op.ReduceProd(op.Mul(op.Sign(diagonal), turns), [1], keepdims=0)
    logarithm = op.ReduceSum(op.Log(op.Abs(diagonal)), [1], keepdims=0)
    return matrices.restored(signs, 0), matrices.restored(logarithm, 0), packed, pivots


@lowering("aten::_linalg_det")
def linalg_det(A: ir.Value) -> tuple[ir.Value, ...]:  # noqa: N803
    """The determinant, the factors and the pivots; onnxruntime's Det has no kernel for float64."""
    matrices = Matrices(A)
    packed, diagonal, turns, pivots = _factors(matrices)
    return matrices.restored(op.ReduceProd(op.Mul(diagonal, turns), [1], keepdims=0), 0), packed, pivots


@lowering("aten::linalg_lu_solve")
def linalg_lu_solve(
    LU: ir.Value,  # noqa: N803
    pivots: ir.Value,
    B: ir.Value,  # noqa: N803
    left: bool = True,
    adjoint: bool = False,
) -> RecordedValue:
    """Solves A X = B from A's factors."""
    assert pivots.shape is not None
    rows = axes.shaped(op.Unsqueeze(pivots, [-1]), [*pivots.shape, 1])
    factors, right, swaps = in_one_batch(LU, B, rows)
    matrices, side = Matrices(factors), Matrices(right)
    merged = Matrices(swaps).data
    order = _order_of(axes.shaped(op.Squeeze(merged, [2]), [None, None]), matrices.rows)
    if left and not adjoint:
        return side.restored(_solved(matrices.data, order, matrices.rows, side.data))
    lower, upper = _unpacked(matrices.data, matrices.rows, matrices.rows)
    permutation = _permutation(order, matrices.rows, matrices.data)
    whole = op.MatMul(permutation, op.MatMul(lower, upper))
    axes.shaped(whole, matrices.data.shape)
    data = side.data if left else with_axes_swapped(side.data)
    whole = with_axes_swapped(whole) if left == adjoint else whole
    packed, other, _ = lu(whole, matrices.rows, matrices.rows)
    solved = _solved(packed, other, matrices.rows, data)
    return side.restored(solved if left else with_axes_swapped(solved))
