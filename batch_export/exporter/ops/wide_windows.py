"""Means by windows that may be far larger than an axis of free size, as products with tables of shares.

Arrives: images, and windows whose last one may reach beyond what there is (`ceil_mode`). Leaves: for each axis one
product, with a table that says what each element adds to the mean of each window. AveragePool would have the images
filled up to the size of a window. An infinity or NaN reaches every window of its row and column, as in other products.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes


def means(
    data: ir.Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    counts_padding: bool,
    divisor: int | None,
) -> RecordedValue:
    """The means of `ceil_mode`, whose windows count the padding at most, and nothing behind it.

    Args:
        data: `float[batch, channels, *spatial]`.
        kernel: the windows' sizes.
        strides: the distances between their beginnings.
        pads: zeros at both ends of each axis.
        counts_padding: whether these are elements to divide by.
        divisor: by what sums are divided in place of the number of elements; None for that.
    """
    result: ir.Value = data
    count = len(kernel)
    for place in range(count):
        dim = 2 + place
        width, stride, pad = kernel[place], strides[place], pads[place]
        length = axes.scalar(axes.size(data, dim))
        windows = op.Add(op.Div(op.Add(length, 2 * pad - width + stride - 1), stride), 1)
        is_behind = op.GreaterOrEqual(op.Mul(op.Sub(windows, 1), stride), op.Add(length, pad))
        windows = op.Sub(windows, op.Cast(is_behind, to=ir.DataType.INT64))  # the last begins within the padding
        starts = op.Sub(op.Mul(op.Range(0, windows, 1), stride), pad)
        ends = op.Min(op.Add(starts, width), op.Add(length, pad))
        if not counts_padding:
            starts, ends = op.Max(starts, 0), op.Min(ends, length)
        is_last = place == count - 1
        along, across = ([1], [0]) if is_last else ([0], [1])
        places = op.Unsqueeze(op.Range(0, length, 1), along)
        starts, ends = op.Unsqueeze(starts, across), op.Unsqueeze(ends, across)
        inside = op.CastLike(op.And(op.GreaterOrEqual(places, starts), op.Less(places, ends)), data)
        table = inside if divisor is not None else op.Div(inside, op.CastLike(op.Sub(ends, starts), data))
        result = product_along(result, data, dim, table, windows)
    assert isinstance(result, RecordedValue)
    return result if divisor is None else op.Div(result, op.CastLike(float(divisor), data))


def product_along(
    result: ir.Value, known: ir.Value, dim: int, table: ir.Value, pieces: int | ir.Value
) -> RecordedValue:
    """A product of one axis with a table: `float[length, pieces]` for the last axis, else turned.

    Args:
        result: what is multiplied.
        known: a value of as many axes, of the same sizes in front of that axis.
        dim: the axis.
        table: what each element is multiplied by for each piece.
        pieces: the axis' size in the product.
    """
    rank = axes.rank(known)
    if dim == rank - 1:
        return op.MatMul(result, table)
    sizes = op.Shape(
        result
    )  # the axes behind are merged: onnxruntime fuses a Transpose of three axes into MatMul wrongly
    behind = op.ReduceProd(op.Slice(sizes, [dim + 1], [rank]), keepdims=1)
    rows = op.Concat(op.Slice(sizes, [0], [dim + 1]), behind, axis=0)
    if any(axes.fixed_size(known, position) in (None, 0) for position in range(dim)):
        # onnxruntime does not broadcast a table over an empty batch.
        table = op.Expand(table, op.Concat(op.Slice(sizes, [0], [dim]), op.Shape(table), axis=0))
    merged = op.MatMul(table, op.Reshape(result, rows, allowzero=1))
    back = op.Concat(op.Slice(sizes, [0], [dim]), [pieces], op.Slice(sizes, [dim + 1], [rank]), axis=0)
    return op.Reshape(merged, back, allowzero=1)
