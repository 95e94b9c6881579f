"""Sampling of images and volumes at points between their elements.

onnxruntime's GridSample rounds a point first and reflects it then, where eager reflects first: half-way between two
elements that is another one. It takes infinite points for any.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_MODES = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")
_NEAREST, _BORDER, _REFLECTION = 1, 1, 2
_BEYOND = 10.0
"""A place of a grid from which every element that counts lies at the border, whatever the size of the image."""


def _sampled(input: ir.Value, grid: ir.Value, mode: int, padding: int, align_corners: bool) -> RecordedValue:
    if mode == _NEAREST and padding == _REFLECTION and not align_corners:
        return _nearest_reflected(input, grid)
    if padding == _BORDER:
        limits = (op.CastLike(limit, grid) for limit in (-_BEYOND, _BEYOND))
        grid = op.Clip(grid, *limits)
    return op.GridSample(
        input, grid, mode=_MODES[mode], padding_mode=_PADDING[padding], align_corners=int(align_corners)
    )


def _nearest_reflected(input: ir.Value, grid: ir.Value) -> RecordedValue:
    """The nearest elements of points that are reflected at the outer edges of the elements at the ends.

    Args:
        input: `float[n, c, *old]`, of two or three axes.
        grid: `float[n, *new, axes]`, the last axis of the image first.
    """
    count = axes.rank(input) - 2
    place: ir.Value | None = None
    all_of_them: ir.Value | None = None
    for axis in range(count):
        length = axes.size(input, 2 + axis)
        size = op.CastLike(length, grid)
        point = op.Squeeze(op.Slice(grid, [count - 1 - axis], [count - axis], [count + 1]), [count + 1])
        away = op.Abs(op.Mul(op.Add(point, op.CastLike(1.0, grid)), op.Div(size, op.CastLike(2.0, grid))))
        twice = op.Add(size, size)
        rest = op.Sub(away, op.Mul(op.Floor(op.Div(away, twice)), twice))
        reflected = op.Sub(op.Min(rest, op.Sub(twice, rest)), op.CastLike(0.5, grid))
        last = op.Sub(size, op.CastLike(1.0, grid))
        zero = op.CastLike(0.0, grid)
        inside = op.Where(op.Greater(reflected, zero), op.Min(reflected, last), zero)  # NaN is not greater
        index = op.Cast(op.Round(inside), to=ir.DataType.INT64)
        place = index if place is None else op.Add(op.Mul(place, length), index)
        all_of_them = length if all_of_them is None else op.Mul(all_of_them, length)
    assert place is not None
    channels, new = op.Shape(input, end=2), op.Shape(place, start=1)
    flat = op.Reshape(input, op.Concat(channels, all_of_them, axis=0), allowzero=1)
    wanted = op.Concat(channels, op.ReduceProd(new, keepdims=1), axis=0)
    taken = op.GatherElements(flat, op.Expand(op.Unsqueeze(op.Flatten(place, axis=1), [1]), wanted), axis=2)
    return op.Reshape(taken, op.Concat(channels, new, axis=0), allowzero=1)


@lowering("aten::grid_sampler", "aten::grid_sampler_3d", opset=20)
def grid_sampler(
    input: ir.Value, grid: ir.Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> RecordedValue:
    """`aten::grid_sampler` of images and of volumes."""
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners)


@lowering("aten::grid_sampler", "aten::grid_sampler_3d")
def grid_sampler_of_images(
    input: ir.Value, grid: ir.Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> RecordedValue:
    """`aten::grid_sampler` before opset 20, which is the first whose GridSample takes volumes."""
    if axes.rank(input) != 4:
        raise TranslationError(
            "GridSample takes volumes from opset 20 on",
            operator="aten::grid_sampler",
            next_step="export with opset_version=20 or higher",
        )
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners)
