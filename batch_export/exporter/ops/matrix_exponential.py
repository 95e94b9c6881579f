"""The exponential of matrices: scaled down by powers of two, a Taylor polynomial, squared as often.

Algorithm: Golub and Van Loan, Matrix Computations, section 9.3. Computed in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.matrices import Matrices, identity

_DEGREE = 14
"""At a norm of one half the next term is below 2**-53."""
_MOST = 60


@lowering("aten::linalg_matrix_exp", "aten::matrix_exp")
def linalg_matrix_exp(self: ir.Value) -> RecordedValue:
    """The exponential of each matrix."""
    matrices = Matrices(self)
    data = axes.shaped(op.Cast(matrices.data, to=ir.DataType.DOUBLE), matrices.data.shape)
    norms = op.ReduceSum(op.Abs(data), [2], keepdims=0)
    norm = op.ReduceMax(op.Concat(op.Reshape(norms, [-1]), op.Reshape(number(0.5), [1]), axis=0), keepdims=0)
    times = op.Add(op.Floor(op.Div(op.Log(norm), op.Log(number(2.0)))), number(2.0))
    times = op.Where(op.IsNaN(times), number(0.0), op.Min(times, number(float(_MOST))))
    scaled = op.Mul(data, op.Pow(number(0.5), times))
    unit = identity(data, matrices.rows)
    total: ir.Value = unit
    for degree in range(_DEGREE, 0, -1):
        total = op.Add(unit, op.Mul(op.MatMul(scaled, total), number(1.0 / degree)))
    axes.shaped(total, data.shape)

    def step(index: RecordedValue, states: Sequence[ir.Value]) -> Sequence[RecordedValue]:
        del index
        return [op.MatMul(states[0], states[0])]

    (made,) = loops.count(op.Cast(times, to=ir.DataType.INT64), step, [total])
    return op.CastLike(matrices.restored(made), self)
