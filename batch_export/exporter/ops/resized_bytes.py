"""Images of bytes, resized in whole numbers as torch does it: first along the rows, rounded, then along the columns.

Weights are whole numbers of 15 bits at most, times a power of two that the largest of an axis decides. onnxruntime's
Resize of bytes computes with floats, and cuts the result off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.resized_lengths import number

Shares = Callable[[ir.Value, ir.Value, float | None, bool, str], RecordedValue]
"""See `resampling_shares.py`."""
_BITS = 15
_MOST = 22
"""The highest power of two that torch tries."""


def resized_bytes(
    image: ir.Value,
    lengths: Sequence[ir.Value],
    scales: Sequence[float | None],
    shares: Shares,
    align_corners: bool,
    mode: str,
) -> RecordedValue:
    """An image of bytes with other lengths.

    Args:
        image: `uint8[n, c, h, w]`.
        lengths: the new height and width, each `int64[1]`.
        scales: the factors that were given, if any.
        shares: the table of an axis.
        align_corners: whether the outermost elements keep their places.
        mode: `linear` or `cubic`.
    """
    result: RecordedValue = op.Cast(image, to=ir.DataType.DOUBLE)
    for axis in (3, 2):
        old, new = axes.size(image, axis), lengths[axis - 2]
        table = shares(old, new, scales[axis - 2], align_corners, mode)
        unit = _unit(table)
        weights = _rounded(op.Mul(table, unit))
        # What keeps its length is left as it is, also by a scale that would move the grid.
        kept = op.Mul(op.CastLike(op.EyeLike(table), table), unit)
        weights = op.Where(op.Equal(old, new), kept, weights)
        sums = op.MatMul(result, op.Transpose(weights, perm=[1, 0]))
        result = op.Floor(op.Div(op.Add(sums, op.Div(unit, number(2.0))), unit))
        result = op.Transpose(op.Clip(result, number(0.0), number(255.0)), perm=[0, 1, 3, 2])
    return op.Cast(result, to=ir.DataType.UINT8)


def _unit(table: ir.Value) -> RecordedValue:
    """The highest power of two, of those tried, by which the largest share is a number of 15 bits."""
    largest = op.ReduceMax(table, keepdims=0)
    powers = op.Constant(value=ir.tensor([2.0**power for power in range(1, _MOST + 1)], dtype=ir.DataType.DOUBLE))
    whole = op.Floor(op.Add(op.Mul(largest, powers), number(0.5)))
    fits = op.Less(whole, number(float(1 << _BITS)))
    return op.ReduceMax(op.Where(fits, powers, number(1.0)), keepdims=0)


def _rounded(x: RecordedValue) -> RecordedValue:
    """Rounded to whole numbers, halves away from zero."""
    return op.Mul(op.Sign(x), op.Floor(op.Add(op.Abs(x), number(0.5))))
