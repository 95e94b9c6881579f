"""Sampling of volumes at points between their elements (images are torchlib's)."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_MODES = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")


def _sampled(input: ir.Value, grid: ir.Value, mode: int, padding: int, align_corners: bool) -> RecordedValue:
    return op.GridSample(
        input, grid, mode=_MODES[mode], padding_mode=_PADDING[padding], align_corners=int(align_corners)
    )


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
