"""Interpolation that ONNX's Resize cannot say, or says only for sizes and not for the scales that torch keeps to.

Antialiased resizing is two matrix products: torch widens its filter by the scale that was given, not by the ratio of
the sizes, and it knows align_corners, for which Resize has no antialiasing. Nearest-exact reads the element at
floor((i + 0.5) / scale), computed in float32 as torch does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


def _number(value: float) -> RecordedValue:
    return op.Constant(value=ir.tensor(value, dtype=ir.DataType.DOUBLE))


def _wide(size: ir.Value) -> RecordedValue:
    """A size, `int64[1]`, as float64."""
    return op.Cast(size, to=ir.DataType.DOUBLE)


def _lengths(
    self: ir.Value, output_size: Sequence[Size] | None, scales: Sequence[float | None], first: int = 2
) -> list[ir.Value]:
    """The new sizes, each `int64[1]`: those that are given, or the old ones times the scales, rounded down."""
    if output_size is not None:
        return [
            op.Reshape(size, [1]) if isinstance(size, ir.Value) else op.Constant(value_ints=[size])
            for size in output_size
        ]
    found: list[ir.Value] = []
    for place, scale in enumerate(scales):
        assert scale is not None
        fixed = axes.fixed_size(self, first + place)
        if fixed is not None:
            found.append(op.Constant(value_ints=[int(fixed * scale)]))
        else:
            product = op.Mul(_wide(axes.size(self, first + place)), _number(scale))
            found.append(op.Cast(op.Floor(product), to=ir.DataType.INT64))
    return found


# Antialiasing ---------------------------------------------------------------------------------------------------------


def _triangle(x: ir.Value) -> RecordedValue:
    return op.Max(op.Sub(_number(1.0), op.Abs(x)), _number(0.0))


def _cubic(x: RecordedValue) -> RecordedValue:
    """Keys' cubic convolution with a = -1/2."""
    x = op.Abs(x)
    inner = op.Add(op.Mul(op.Mul(op.Sub(op.Mul(_number(1.5), x), _number(2.5)), x), x), _number(1.0))
    outer = op.Add(
        op.Mul(op.Sub(op.Mul(op.Sub(_number(2.5), op.Mul(_number(0.5), x)), x), _number(4.0)), x), _number(2.0)
    )
    beyond = op.Where(op.Less(x, _number(2.0)), outer, _number(0.0))
    return op.Where(op.Less(x, _number(1.0)), inner, beyond)


def _antialiasing(
    length: ir.Value,
    wanted: ir.Value,
    scale: float | None,
    align_corners: bool,
    reach: float,
    kernel: Callable[[RecordedValue], RecordedValue],
) -> RecordedValue:
    """The share of each old element in each new one, `float64[new, old]`.

    Source of the rule: the documented behaviour of Pillow's resize, which torch follows: a filter as wide as the
    step between new elements, cut at the ends and normalised.
    """
    old, new = _wide(length), _wide(wanted)
    if align_corners:
        gaps = op.Max(op.Sub(new, _number(1.0)), _number(1.0))
        step = op.Where(op.Greater(new, _number(1.0)), op.Div(op.Sub(old, _number(1.0)), gaps), _number(0.0))
    else:
        step = op.Div(old, new) if scale is None else _number(1.0 / scale)
    widened = op.Max(step, _number(1.0))
    support = op.Mul(widened, _number(reach))
    rows = op.Unsqueeze(_wide(op.Range(0, axes.scalar(wanted), 1)), [1])
    columns = op.Unsqueeze(_wide(op.Range(0, axes.scalar(length), 1)), [0])
    centre = op.Mul(step, op.Add(rows, _number(0.5)))
    low = op.Floor(op.Add(op.Sub(centre, support), _number(0.5)))
    high = op.Floor(op.Add(op.Add(centre, support), _number(0.5)))
    inside = op.And(op.GreaterOrEqual(columns, low), op.Less(columns, high))
    weight = kernel(op.Div(op.Add(op.Sub(columns, centre), _number(0.5)), widened))
    weight = op.Where(inside, weight, _number(0.0))
    total = op.ReduceSum(weight, [1], keepdims=1)
    return op.Div(weight, op.Where(op.Equal(total, _number(0.0)), _number(1.0), total))


def _antialiased(
    self: ir.Value, lengths: Sequence[ir.Value], align_corners: bool, scales: Sequence[float | None], mode: str
) -> RecordedValue:
    sizes_decide = all(scale is None or float(scale).is_integer() for scale in scales)
    if sizes_decide and not align_corners and self.dtype != ir.DataType.DOUBLE:
        return op.Resize(
            self, None, None, op.Concat(op.Shape(self, end=2), *lengths, axis=0), mode=mode, antialias=1,
            cubic_coeff_a=-0.5, exclude_outside=1, coordinate_transformation_mode="half_pixel",
        )  # fmt: skip
    reach, kernel = (1.0, _triangle) if mode == "linear" else (2.0, _cubic)
    down, across = (
        op.CastLike(_antialiasing(axes.size(self, axis), wanted, scale, align_corners, reach, kernel), self)
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
        return _antialiased(self, _lengths(self, output_size, ()), align_corners, (scales_h, scales_w), mode)

    def by_either(
        input: ir.Value,
        output_size: Sequence[Size] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None = None,
    ) -> RecordedValue:
        scales = scale_factors or (None, None)
        return _antialiased(input, _lengths(input, output_size, scales), align_corners, scales, mode)

    by_size.__doc__ = by_either.__doc__ = f"Antialiased {mode} interpolation."
    return by_size, by_either


_by_size, _by_either = _antialiased_by("linear")
bilinear_by_size = lowering("aten::_upsample_bilinear2d_aa")(_by_size)
bilinear = lowering("aten::_upsample_bilinear2d_aa.vec")(_by_either)
_by_size, _by_either = _antialiased_by("cubic")
bicubic_by_size = lowering("aten::_upsample_bicubic2d_aa")(_by_size)
bicubic = lowering("aten::_upsample_bicubic2d_aa.vec")(_by_either)


# Nearest and linear ---------------------------------------------------------------------------------------------------


def _nearest_exact(self: ir.Value, lengths: Sequence[ir.Value], scales: Sequence[float | None]) -> ir.Value:
    result: ir.Value = self
    for place, (wanted, scale) in enumerate(zip(lengths, scales, strict=True)):
        length = axes.size(self, 2 + place)
        old, new = (op.Cast(size, to=ir.DataType.FLOAT) for size in (length, wanted))
        step = op.Div(old, new) if scale is None else op.Constant(value_float=1.0 / scale)
        middles = op.Add(op.Cast(op.Range(0, axes.scalar(wanted), 1), to=ir.DataType.FLOAT), 0.5)
        places = op.Cast(op.Floor(op.Mul(middles, step)), to=ir.DataType.INT64)
        result = op.Gather(result, op.Min(places, op.Sub(length, [1])), axis=2 + place)
    return result


@lowering(
    "aten::_upsample_nearest_exact1d.vec", "aten::_upsample_nearest_exact2d.vec", "aten::_upsample_nearest_exact3d.vec"
)  # fmt: skip
def nearest_exact(
    input: ir.Value, output_size: Sequence[Size] | None, scale_factors: Sequence[float] | None = None
) -> ir.Value:
    """The nearest elements, by sizes or by scales."""
    scales: Sequence[float | None] = scale_factors or [None] * (axes.rank(input) - 2)
    return _nearest_exact(input, _lengths(input, output_size, scales), scales)


@lowering("aten::_upsample_nearest_exact1d", "aten::_upsample_nearest_exact2d", "aten::_upsample_nearest_exact3d")
def nearest_exact_by_size(
    self: ir.Value,
    output_size: Sequence[Size] | None,
    scales_0: float | None = None,
    scales_1: float | None = None,
    scales_2: float | None = None,
) -> ir.Value:
    """The nearest elements; the sizes are given, and perhaps the scales that they come from."""
    given = [scales_0, scales_1, scales_2][: axes.rank(self) - 2]
    return _nearest_exact(self, _lengths(self, output_size, ()), given)


def _may_keep(input: ir.Value, axis: int, scale: float, factor: int) -> bool:
    """Whether an axis of two elements or more, times the scale, can become exactly `factor` times as long."""
    length = axes.fixed_size(input, axis)
    if scale == factor or not factor < scale < factor + 0.5:
        return False
    return length is None or (length > 1 and int(length * scale) == factor * length)


@lowering("aten::upsample_linear1d.vec", "aten::upsample_bilinear2d.vec", "aten::upsample_trilinear3d.vec")
def linear(
    input: ir.Value,
    output_size: Sequence[Size] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None = None,
) -> RecordedValue:
    """Linear interpolation of one or three axes.

    One axis gets another of size 1: onnxruntime takes the channels of three axes for rows, and weighs the next row of
    NaN or infinity with 0.
    """
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
        lengths = _lengths(input, output_size, scale_factors or (), first)
        sizes = op.Concat(op.Shape(input, end=first), *lengths, axis=0)
        return op.Resize(input, None, None, sizes, mode="linear", coordinate_transformation_mode=mode)
    if not any(_may_keep(input, first + place, scale, 1) for place, scale in enumerate(scale_factors)):
        scales = op.Constant(value_floats=[*[1.0] * first, *scale_factors])
        return op.Resize(input, None, scales, mode="linear", coordinate_transformation_mode=mode)
    parts: list[ir.Value] = [op.Constant(value_floats=[1.0] * first)]
    lengths = _lengths(input, None, scale_factors, first)
    for axis, (scale, wanted) in enumerate(zip(scale_factors, lengths, strict=True), start=first):
        given, one = op.Constant(value_floats=[scale]), op.Constant(value_floats=[1.0])
        keeps = op.Equal(wanted, axes.size(input, axis))
        parts.append(op.Where(keeps, one, given) if _may_keep(input, axis, scale, 1) else given)
    scales = op.Concat(*parts, axis=0)
    return op.Resize(input, None, scales, mode="linear", coordinate_transformation_mode=mode)


_SMALL = 128
"""Up to this sum of height and width, torch's CPU kernel of two axes looks at lengths that stay or double."""


@lowering("aten::upsample_nearest2d.vec")
def nearest(
    input: ir.Value, output_size: Sequence[Size] | None | None = None, scale_factors: Sequence[float] | None = None
) -> ir.Value:
    """The elements at floor(i / scale); in small images torch copies along an axis that keeps its length, or doubles.

    Source: seen in torch 2.13 on the CPU, where 1.2 times four elements are these four, but not in a large image.
    """
    from onnxscript.function_libs.torch_lib.ops import nn  # lazy: a second and more to import

    scales = list(scale_factors or ())
    special = [
        (place, factor)
        for place, scale in enumerate(scales)
        for factor in (1, 2)
        if _may_keep(input, 2 + place, scale, factor)
    ]
    if not special:
        plain = cast("Callable[..., RecordedValue]", nn.aten_upsample_nearestnd_vec)
        return plain(input, output_size, scale_factors)
    lengths = _lengths(input, None, scales)
    is_small = op.LessOrEqual(op.Add(*lengths), op.Constant(value_ints=[_SMALL]))
    result: ir.Value = input
    for place, (wanted, scale) in enumerate(zip(lengths, scales, strict=True)):
        length, numbers = axes.size(input, 2 + place), op.Range(0, axes.scalar(wanted), 1)
        shares = op.Mul(op.Cast(numbers, to=ir.DataType.FLOAT), op.Constant(value_float=1.0 / scale))
        places = op.Min(op.Cast(op.Floor(shares), to=ir.DataType.INT64), op.Sub(length, [1]))
        for factor in (one for at, one in special if at == place):
            doubles = op.And(is_small, op.Equal(wanted, op.Mul(length, [factor])))
            places = op.Where(doubles, op.Div(numbers, factor), places)
        result = op.Gather(result, places, axis=2 + place)
    return result


# Cubic ----------------------------------------------------------------------------------------------------------------


def _cubic_shares(length: ir.Value, wanted: ir.Value, scale: float) -> RecordedValue:
    """The share of each old element in each new one, `float64[new, old]`, by Keys' kernel with a = -3/4.

    What lies beyond the ends is the element at the end, as in torch.
    """
    rows = op.Unsqueeze(_wide(op.Range(0, axes.scalar(wanted), 1)), [1])
    columns = op.Unsqueeze(_wide(op.Range(0, axes.scalar(length), 1)), [0])
    centre = op.Sub(op.Mul(op.Add(rows, _number(0.5)), _number(1.0 / scale)), _number(0.5))
    first, end = op.Floor(centre), _wide(op.Sub(length, [1]))
    total = None
    for step in (-1.0, 0.0, 1.0, 2.0):
        tap = op.Add(first, _number(step))
        away = op.Abs(op.Sub(centre, tap))
        near = op.Add(op.Mul(op.Mul(op.Sub(op.Mul(_number(1.25), away), _number(2.25)), away), away), _number(1.0))
        far = op.Add(
            op.Mul(op.Add(op.Mul(op.Sub(_number(3.75), op.Mul(_number(0.75), away)), away), _number(-6.0)), away),
            _number(3.0),
        )
        share = op.Where(op.LessOrEqual(away, _number(1.0)), near, far)
        reached = op.Equal(columns, op.Min(op.Max(tap, _number(0.0)), end))
        part = op.Where(reached, share, _number(0.0))
        total = part if total is None else op.Add(total, part)
    assert total is not None
    return total


@lowering("aten::upsample_bicubic2d.vec")
def cubic(
    input: ir.Value,
    output_size: Sequence[Size] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None = None,
) -> RecordedValue:
    """Cubic interpolation of two axes; a scale moves the grid also where it leaves both lengths as they are.

    onnxruntime's Resize copies such an image, so that this is two matrix products there.
    """
    from onnxscript.function_libs.torch_lib.ops import nn  # lazy: a second and more to import

    scales = list(scale_factors or ())
    stays = not align_corners and scale_factors is not None
    if not stays or not all(_may_keep(input, 2 + place, scale, 1) for place, scale in enumerate(scales)):
        plain = cast("Callable[..., RecordedValue]", nn.aten_upsample_bicubic2d_vec)
        return plain(input, output_size, align_corners, scale_factors)
    down, across = (
        op.CastLike(_cubic_shares(axes.size(input, 2 + place), wanted, scales[place]), input)
        for place, wanted in enumerate(_lengths(input, None, scales))
    )
    return op.MatMul(op.MatMul(down, input), op.Transpose(across, perm=[1, 0]))
