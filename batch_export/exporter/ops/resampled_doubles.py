"""Linear interpolation of float64, of which onnxruntime's Resize has no kernel, as eager's sum of two neighbours.

Arrives: a tensor of float64 and how torch was asked to resize it. Leaves: `a * (1 - share) + b * share` of the nearest
elements, axis by axis from the last one. Written as `a + (b - a) * share`, the sign of zeros and infinities get lost.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.resampling_shares import step_between
from batch_export.exporter.ops.resized_lengths import may_keep, new_lengths, number, wide


def between_neighbours(
    input: ir.Value,
    output_size: Sequence[Size] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
    first: int = 2,
) -> ir.Value:
    """Linear interpolation of all axes from `first` on."""
    lengths = new_lengths(input, output_size, scale_factors or (), first)
    result = input
    for axis in range(axes.rank(input) - 1, first - 1, -1):
        scale = scale_factors[axis - first] if scale_factors is not None else None
        result = _along(result, input, axis, lengths[axis - first], None if align_corners else scale, align_corners)
    return result


def _along(
    value: ir.Value, input: ir.Value, axis: int, wanted: ir.Value, scale: float | None, align_corners: bool
) -> RecordedValue:
    """One axis resized; the size that it has is that of the input, whose shape is known."""
    length = axes.size(input, axis)
    step = step_between(length, wanted, scale, align_corners)
    places = wide(op.Range(0, axes.scalar(wanted), 1))
    if align_corners:
        centre = op.Mul(places, step)
    else:
        centre = op.Max(op.Sub(op.Mul(op.Add(places, number(0.5)), step), number(0.5)), number(0.0))
    last = op.Sub(length, [1])
    keeps = None
    if scale is None or may_keep(input, axis, scale, 1):  # eager takes an axis that keeps its length as it is
        keeps = op.Equal(wanted, length)
        centre = op.Where(keeps, places, centre)
    near = op.Min(op.Cast(centre, to=ir.DataType.INT64), last)
    far = op.Min(op.Add(near, [1]), last)
    far = far if keeps is None else op.Where(keeps, near, far)
    share = op.Min(op.Sub(centre, wide(near)), number(1.0))
    behind = list(range(1, axes.rank(input) - axis))
    share = op.Unsqueeze(share, behind) if behind else share
    left = op.Mul(op.Gather(value, near, axis=axis), op.Sub(number(1.0), share))
    return op.Add(left, op.Mul(op.Gather(value, far, axis=axis), share))
