"""Interpolation that ONNX's Resize cannot say, or says only for sizes and not for the scales that torch keeps to.

Antialiased resizing is two matrix products: torch widens its filter by the scale that was given, not by the ratio of
the sizes, and it knows align_corners, for which Resize has no antialiasing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.resampled_doubles import between_neighbours
from batch_export.exporter.ops.resampling_shares import plain_shares, widened_shares
from batch_export.exporter.ops.resized_bytes import resized_bytes
from batch_export.exporter.ops.resized_lengths import counts_alike, may_keep, new_lengths, rounded_up

# Antialiasing ---------------------------------------------------------------------------------------------------------


def _antialiased(
    self: ir.Value, lengths: Sequence[ir.Value], align_corners: bool, scales: Sequence[float | None], mode: str
) -> RecordedValue:
    if self.dtype == ir.DataType.UINT8:
        return resized_bytes(self, lengths, scales, widened_shares, align_corners, mode)
    sizes_decide = all(scale is None or float(scale).is_integer() for scale in scales)
    if sizes_decide and not align_corners and self.dtype != ir.DataType.DOUBLE:
        return op.Resize(
            self, None, None, op.Concat(op.Shape(self, end=2), *lengths, axis=0), mode=mode, antialias=1,
            cubic_coeff_a=-0.5, exclude_outside=1, coordinate_transformation_mode="half_pixel",
        )  # fmt: skip
    down, across = (
        op.CastLike(widened_shares(axes.size(self, axis), wanted, scale, align_corners, mode), self)
        for axis, wanted, scale in zip((2, 3), lengths, scales, strict=True)
    )
    return op.MatMul(_left_product(down, self), op.Transpose(across, perm=[1, 0]))


def _left_product(table: ir.Value, images: ir.Value) -> RecordedValue:
    """A table times every image; runtimes do not repeat a left factor over a batch of 0."""
    if all(axes.fixed_size(images, axis) for axis in (0, 1)):
        return op.MatMul(table, images)
    return op.MatMul(op.Expand(table, op.Concat(op.Shape(images, end=2), op.Shape(table), axis=0)), images)


def _antialiased_by(mode: str) -> tuple[Callable[..., RecordedValue], Callable[..., RecordedValue]]:
    def by_size(
        self: ir.Value,
        output_size: Sequence[Size] | None,
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> RecordedValue:
        return _antialiased(self, new_lengths(self, output_size, ()), align_corners, (scales_h, scales_w), mode)

    def by_either(
        input: ir.Value,
        output_size: Sequence[Size] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None = None,
    ) -> RecordedValue:
        scales = scale_factors or (None, None)
        return _antialiased(input, new_lengths(input, output_size, scales), align_corners, scales, mode)

    by_size.__doc__ = by_either.__doc__ = f"Antialiased {mode} interpolation."
    return by_size, by_either


_by_size, _by_either = _antialiased_by("linear")
bilinear_by_size = lowering("aten::_upsample_bilinear2d_aa")(_by_size)
bilinear = lowering("aten::_upsample_bilinear2d_aa.vec")(_by_either)
_by_size, _by_either = _antialiased_by("cubic")
bicubic_by_size = lowering("aten::_upsample_bicubic2d_aa")(_by_size)
bicubic = lowering("aten::_upsample_bicubic2d_aa.vec")(_by_either)


# Without antialiasing -------------------------------------------------------------------------------------------------


def _of_bytes(
    input: ir.Value,
    output_size: Sequence[Size] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
    mode: str,
) -> RecordedValue:
    scales = scale_factors or (None, None)
    lengths = new_lengths(input, output_size, scales)
    return resized_bytes(input, lengths, scales, plain_shares, align_corners, mode)


# Linear ---------------------------------------------------------------------------------------------------------------


@lowering("aten::upsample_linear1d.vec", "aten::upsample_bilinear2d.vec", "aten::upsample_trilinear3d.vec")
def linear(
    input: ir.Value,
    output_size: Sequence[Size] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None = None,
) -> ir.Value:
    """Linear interpolation of one or three axes.

    Numbers of float64, of which onnxruntime's Resize has no kernel, are summed as eager sums them. One axis of others
    gets another of size 1: onnxruntime takes the channels of three axes for rows, and weighs the next row of
    NaN or infinity with 0.
    """
    if input.dtype == ir.DataType.UINT8:
        return _of_bytes(input, output_size, align_corners, scale_factors, "linear")
    if input.dtype == ir.DataType.DOUBLE:
        return between_neighbours(input, output_size, align_corners, scale_factors)
    if axes.rank(input) == 3:
        assert input.shape is not None
        rows = axes.shaped(op.Unsqueeze(input, [2]), [*input.shape[:2], 1, input.shape[2]])
        return op.Squeeze(_linear(rows, 3, output_size, align_corners, scale_factors), [2])
    return _linear(input, 2, output_size, align_corners, scale_factors)


def _linear(
    input: ir.Value,
    first: int,
    output_size: Sequence[Size] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
) -> RecordedValue:
    """Linear interpolation of the axes from `first` on."""
    mode = "align_corners" if align_corners else "half_pixel"
    if scale_factors is None or align_corners:
        lengths = new_lengths(input, output_size, scale_factors or (), first)
        sizes = op.Concat(op.Shape(input, end=first), *lengths, axis=0)
        return op.Resize(input, None, None, sizes, mode="linear", coordinate_transformation_mode=mode)
    return _by_scales(input, first, scale_factors, "linear")


def _by_scales(
    input: ir.Value, first: int, scales: Sequence[float], mode: str, cubic_coeff_a: float | None = None
) -> RecordedValue:
    """Interpolation of the axes from `first` on, with as many elements as torch counts."""
    attributes: dict[str, float] = {} if cubic_coeff_a is None else {"cubic_coeff_a": cubic_coeff_a}
    alike = [counts_alike(axes.fixed_size(input, first + place), scale) for place, scale in enumerate(scales)]
    given = [scale if same else rounded_up(scale) for scale, same in zip(scales, alike, strict=True)]
    keeping = [
        mode == "linear" and may_keep(input, first + place, scale, 1) for place, scale in enumerate(scales)
    ]  # onnxruntime's Resize moves the grid of an axis that keeps its length, and torch does not
    if not any(keeping) and all(alike):
        factors: ir.Value = op.Constant(value_floats=[*[1.0] * first, *given])
        return op.Resize(input, None, factors, mode=mode, coordinate_transformation_mode="half_pixel", **attributes)
    lengths = new_lengths(input, None, scales, first)
    parts: list[ir.Value] = [op.Constant(value_floats=[1.0] * first)]
    for axis, (scale, wanted, keeps) in enumerate(zip(given, lengths, keeping, strict=True), start=first):
        factor, one = op.Constant(value_floats=[scale]), op.Constant(value_floats=[1.0])
        parts.append(op.Where(op.Equal(wanted, axes.size(input, axis)), one, factor) if keeps else factor)
    factors = op.Concat(*parts, axis=0)
    result = op.Resize(input, None, factors, mode=mode, coordinate_transformation_mode="half_pixel", **attributes)
    for axis, (wanted, same) in enumerate(zip(lengths, alike, strict=True), start=first):
        if not same:
            result = op.Slice(result, [0], wanted, [axis])
    return result


# Cubic ----------------------------------------------------------------------------------------------------------------


@lowering("aten::upsample_bicubic2d.vec")
def cubic(
    input: ir.Value,
    output_size: Sequence[Size] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None = None,
) -> ir.Value:
    """Cubic interpolation of two axes; a scale moves the grid also where it leaves both lengths as they are.

    onnxruntime's Resize copies such an image, so that this is two matrix products there.
    """
    if input.dtype == ir.DataType.UINT8:
        return _of_bytes(input, output_size, align_corners, scale_factors, "cubic")
    if scale_factors is None or align_corners:
        lengths = new_lengths(input, output_size, scale_factors or ())
        return op.Resize(
            input, None, None, op.Concat(op.Shape(input, end=2), *lengths, axis=0), mode="cubic", cubic_coeff_a=-0.75,
            coordinate_transformation_mode="align_corners" if align_corners else "half_pixel",
        )  # fmt: skip
    moving = [place for place, scale in enumerate(scale_factors) if scale != 1.0]
    if not moving or not all(may_keep(input, 2 + place, scale_factors[place], 1) for place in moving):
        return _by_scales(input, 2, scale_factors, "cubic", -0.75)
    lengths = new_lengths(input, None, scale_factors)
    shares = {
        place: op.CastLike(
            plain_shares(axes.size(input, 2 + place), lengths[place], scale_factors[place], False, "cubic"), input
        )
        for place in moving
    }
    result = op.MatMul(shares[0], input) if 0 in shares else input
    return op.MatMul(result, op.Transpose(shares[1], perm=[1, 0])) if 1 in shares else result
