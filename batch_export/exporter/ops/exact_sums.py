"""Sums of large integers: onnxruntime's ReduceSum goes through floating point, and is exact below 2^53 only.

Hashes are such sums: products that wrap around, added up. A matrix product with ones adds int64 as torch does, in as
many nodes. Whatever is known to be small, or comes as it is from an input, stays a ReduceSum.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.magnitude import MOVES
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes

_GROWS = frozenset({"Mul", "Pow", "BitShift", "MatMul", "BitwiseNot"})
_PASSES = MOVES | {"Add", "Sub", "Neg", "Abs", "Where", "BitwiseXor", "BitwiseOr", "Concat", "Pad"}
_DEPTH = 12


def may_be_large(value: ir.Value | None, depth: int = _DEPTH) -> bool:
    """Whether an int64 tensor is made of products, which may be of any size."""
    if value is None or value.dtype != ir.DataType.INT64 or not depth:
        return False
    node = value.producer()
    if node is None or node.domain:
        return False
    if node.op_type in _GROWS:
        return not any(_is_truth(one) for one in node.inputs)
    return node.op_type in _PASSES and any(may_be_large(one, depth - 1) for one in node.inputs)


def _is_truth(value: ir.Value | None) -> bool:
    """Whether a factor is 0 or 1, so that a product is as small as the other one."""
    node = None if value is None else value.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Cast" else None
    return source is not None and source.dtype == ir.DataType.BOOL


def exact_sum(self: ir.Value, wanted: Sequence[int] | None, *, keepdims: bool) -> RecordedValue:
    """The sum along axes (all of them when none is named), which wraps around."""
    rank = axes.rank(self)
    reduced = sorted({axis % rank for axis in (range(rank) if wanted is None else wanted)})
    kept = [axis for axis in range(rank) if axis not in reduced]
    moved = self if kept + reduced == list(range(rank)) else op.Transpose(self, perm=kept + reduced)
    if len(reduced) > 1:
        front = [axes.size(self, axis) for axis in kept]
        last = op.ReduceProd(op.Concat(*(axes.size(self, axis) for axis in reduced), axis=0), keepdims=1)
        moved = op.Reshape(moved, op.Concat(*front, last, axis=0) if front else last, allowzero=1)
    count = op.Shape(moved, start=len(kept), end=len(kept) + 1)
    ones = op.Expand(op.Constant(value=ir.tensor([[1]], dtype=ir.DataType.INT64)), op.Concat(count, [1], axis=0))
    added = op.MatMul(moved, ones)
    if keepdims and reduced == [rank - 1]:
        return added
    found = op.Squeeze(added, [len(kept)])
    return op.Unsqueeze(found, reduced) if keepdims else found
