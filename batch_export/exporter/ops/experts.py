"""Grouped matrix products: rows sorted by expert, one matrix per expert."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


@lowering("transformers::grouped_mm_fallback")
def grouped_rows(input: ir.Value, weight: ir.Value, offs: ir.Value) -> RecordedValue:
    """Row r times the matrix of the group g with offs[g - 1] <= r < offs[g]: `float[rows, k]`, `float[groups, k, n]`.

    Every matrix meets every row, and rows of other groups are zeroed: ONNX has no product over groups of free size.
    """
    rows = op.Unsqueeze(op.Range(0, op.Squeeze(axes.size(input, 0), [0]), 1), [0])
    ends = op.Unsqueeze(op.Cast(offs, to=ir.DataType.INT64), [1])
    before = op.Less(rows, ends)
    earlier = op.Pad(before, [1, 0, -1, 0], False)
    belongs = op.Unsqueeze(op.And(before, op.Not(earlier)), [2])
    products = op.MatMul(op.Unsqueeze(input, [0]), weight)
    return op.ReduceSum(op.Where(belongs, products, op.CastLike(0.0, input)), [0], keepdims=0)


@lowering("aten::_grouped_mm")
def grouped_mm(
    self: ir.Value, mat2: ir.Value, offs: ir.Value | None = None, bias: ir.Value | None = None, out_dtype: int = -1
) -> RecordedValue:
    """`aten::_grouped_mm` of rows by group, or of two batches of matrices."""
    ranks = axes.rank(self), axes.rank(mat2)
    if ranks == (2, 3) and offs is not None:
        product = grouped_rows(self, mat2, offs)
    elif ranks == (3, 3):
        product = op.MatMul(self, mat2)
    else:
        raise TranslationError(
            f"grouped_mm of {ranks[0]}-D by {ranks[1]}-D tensors has no ONNX form here",
            operator="aten::_grouped_mm",
            next_step="multiply rows `[rows, k]` by `[groups, k, n]`, with offsets",
        )
    product = product if bias is None else op.Add(product, bias)
    return product if out_dtype == -1 else op.Cast(product, to=out_dtype)
