"""AffineGrid: the coordinates of an image's pixels, -1 to 1, under an affine map."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.rules import NoForm, Result, attribute, first, needed
from batch_export.legalise.writing import Writer


def affine_grid(node: ir.Node, op: Writer) -> Result:
    """The node in operators of opset 13: maps `[batch, dims, dims + 1]`, result `[batch, *sizes, dims]`."""
    maps, size = first(node), needed(node, 1)
    shape = size.shape
    if shape is None or not isinstance(shape[0], int) or maps.dtype is None:
        raise NoForm("AffineGrid for a size of unknown length, or of an unknown dtype")
    dims = shape[0] - 2
    lengths = op.Slice(size, op.number([2]), op.number([2 + dims]))
    ones = op.Expand(op.number(1.0, maps.dtype), lengths)
    columns = []
    for axis in reversed(range(dims)):  # x first, which runs along the last axis
        length = op.Gather(lengths, op.number(axis))
        along = _centres(op, length, maps.dtype, bool(attribute(node, "align_corners", 0)))
        along = op.Reshape(along, op.number([-1] + [1] * (dims - 1 - axis)))
        columns.append(op.Unsqueeze(op.Expand(along, lengths), op.number([-1])))
    places = op.Concat(*columns, op.Unsqueeze(ones, op.number([-1])), axis=-1)
    flat = op.Reshape(places, op.number([-1, dims + 1]))
    moved = op.MatMul(flat, op.Transpose(maps, perm=[0, 2, 1]))
    batch = op.Slice(size, op.number([0]), op.number([1]))
    return op.Reshape(moved, op.Concat(batch, lengths, op.number([dims]), axis=0))


def _centres(op: Writer, length: ir.Value, dtype: ir.DataType, aligned: bool) -> ir.Value:
    """The coordinates along an axis: from -1 to 1 where corners are aligned, else of the pixels' centres."""
    places = op.Cast(op.Range(op.number(0), length, op.number(1)), to=dtype)
    one, two = op.number(1.0, dtype), op.number(2.0, dtype)
    if aligned:
        gaps = op.Cast(op.Max(op.Sub(length, op.number(1)), op.number(1)), to=dtype)
        return op.Sub(op.Div(op.Mul(places, two), gaps), one)
    return op.Sub(op.Div(op.Add(op.Mul(places, two), one), op.Cast(length, to=dtype)), one)
