"""embedding_bag: sums, means and maxima over bags of embeddings."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_SUM, _MEAN, _MAX = 0, 1, 2
_ENDING = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
"""Dtypes for which eager's sums and means end the last bag at a last offset; its other kernels go on to the end."""


@lowering(
    "aten::embedding_bag",
    "aten::embedding_bag.padding_idx",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
)
def embedding_bag(
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> list[RecordedValue]:
    """One row for each bag; indices are 1-D, bag b holds positions offsets[b] to offsets[b + 1].

    Membership of positions in bags is a matrix float[bags, positions], so sums are one matrix product.
    """
    if weight.dtype is None:
        raise TranslationError("embedding_bag needs a weight of known dtype", operator="aten::embedding_bag")
    positions = op.Range(0, op.Squeeze(op.Shape(indices), [0]), 1)
    starts = op.Cast(offsets, to=ir.DataType.INT64)
    padded = padding_idx is not None and padding_idx != -1
    end = None
    if include_last_offset:
        if mode != _MAX and not padded and weight.dtype in _ENDING:
            end = op.Slice(starts, [-1], [2**31 - 1], [0])
        starts = op.Slice(starts, [0], [-1], [0])
    begun = op.Cast(op.LessOrEqual(op.Unsqueeze(starts, [1]), op.Unsqueeze(positions, [0])), to=ir.DataType.INT64)
    bag_of_position = op.Sub(op.ReduceSum(begun, [0], keepdims=0), 1)
    bags = op.Range(0, op.Squeeze(op.Shape(starts), [0]), 1)
    member = op.Equal(op.Unsqueeze(bags, [1]), op.Unsqueeze(bag_of_position, [0]))
    if padded:
        member = op.And(
            member, op.Unsqueeze(op.Not(op.Equal(op.Cast(indices, to=ir.DataType.INT64), padding_idx)), [0])
        )
    rows = op.Gather(weight, indices, axis=0)
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(per_sample_weights, [1]))
    if mode == _MAX:
        inside = op.Unsqueeze(member, [2])
        spread = op.Where(inside, op.Unsqueeze(rows, [0]), op.CastLike(float("-inf"), rows))
        largest = op.ReduceMax(spread, [1], keepdims=0)
        held = op.ReduceMax(op.Cast(member, to=ir.DataType.INT32), [1], keepdims=1)
        filled = op.Greater(held, axes.like(0, held))  # of no positions at all the maximum is the smallest integer
        return [op.Where(filled, largest, op.CastLike(0.0, rows))]
    matrix = op.Cast(member, to=weight.dtype)
    summed = matrix
    if end is not None:  # a mean is divided by the number of all of them nonetheless
        summed = op.Cast(op.And(member, op.Unsqueeze(op.Less(positions, end), [0])), to=weight.dtype)
    total = op.MatMul(summed, rows)
    if mode == _SUM:
        return [total]
    count = op.ReduceSum(matrix, [1], keepdims=1)
    return [op.Div(total, op.Max(count, op.CastLike(1.0, count)))]
