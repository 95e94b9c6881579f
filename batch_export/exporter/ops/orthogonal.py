"""QR by Householder's reflections, one column at a time, with LAPACK's signs.

Algorithm: Golub and Van Loan, Matrix Computations, chapter 5.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import loops
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.matrices import (
    Matrices,
    column_at,
    identity,
    numbers_along,
    row_at,
    smaller,
    with_axes_swapped,
)


def householder(data: ir.Value, rows: Size, columns: Size) -> tuple[RecordedValue, RecordedValue]:
    """Q `float[batch, rows, rows]` and R `float[batch, rows, columns]`, with the signs that LAPACK gives."""
    numbers = numbers_along(rows, [1, -1, 1])

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        orthogonal, reduced = states
        zero, one, two = (op.CastLike(number, reduced) for number in (0.0, 1.0, 2.0))
        column = op.Where(op.Less(numbers, index), zero, column_at(reduced, index))
        head = row_at(column, index)
        tail = op.Where(op.Equal(numbers, index), zero, column)
        tail_length = op.ReduceSum(op.Mul(tail, tail), [1], keepdims=1)
        is_done = op.Equal(tail_length, zero)
        length = op.Sqrt(op.Add(tail_length, op.Mul(head, head)))
        signed = op.Where(op.Less(head, zero), op.Neg(length), length)
        mirror = op.Where(op.Equal(numbers, index), op.Add(head, signed), tail)
        size = op.ReduceSum(op.Mul(mirror, mirror), [1], keepdims=1)
        scale = op.Where(is_done, zero, op.Div(two, op.Where(op.Equal(size, zero), one, size)))
        flat = with_axes_swapped(mirror)
        reduced = op.Sub(reduced, op.Mul(scale, op.MatMul(mirror, op.MatMul(flat, reduced))))
        orthogonal = op.Sub(orthogonal, op.Mul(scale, op.MatMul(op.MatMul(orthogonal, mirror), flat)))
        return orthogonal, reduced

    return tuple(loops.count(smaller(rows, columns), step, [identity(data, rows), data]))  # type: ignore[return-value]


@lowering("aten::linalg_qr")
def linalg_qr(A: ir.Value, mode: str = "reduced") -> tuple[RecordedValue, ...]:  # noqa: N803
    """Q and R; `complete` gives all of Q, `r` no Q."""
    matrices = Matrices(A)
    orthogonal, reduced = householder(matrices.data, matrices.rows, matrices.columns)
    reduced = op.Trilu(reduced, None, upper=1)
    if mode != "complete":
        count = smaller(matrices.rows, matrices.columns)
        stop = [count] if isinstance(count, int) else op.Reshape(count, [1])
        orthogonal = op.Slice(orthogonal, [0], stop, [2])
        reduced = op.Slice(reduced, [0], stop, [1])
    nothing = op.CastLike(op.Constant(value=ir.tensor([], dtype=ir.DataType.FLOAT)), A)
    return nothing if mode == "r" else matrices.restored(orthogonal), matrices.restored(reduced)
