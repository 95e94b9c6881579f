"""Interpolation that copies the nearest elements.

torch reads the element at floor(i * step), and at floor((i + 0.5) * step) for nearest-exact, computed in float32; a
step is 1 / scale, or the old length over the new one. onnxruntime's Resize divides by the scale instead, also where
sizes are given, and takes another element where one of the two falls short of an integer: of 14 elements resized to 4
the third is the seventh. Resize stands where both rules are the same, indices that are computed where they are not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.resized_lengths import LONGEST, counts_alike, may_keep, new_lengths

_SMALL = 128
"""Up to this sum of height and width, torch's CPU kernel of two axes looks at lengths that stay or double."""

_LIMITED = 64.0
"""The largest scale by which the last place of up to 100,000 is none beyond the end in float32."""


def _places(length: ir.Value, wanted: ir.Value, scale: float | None, middle: float = 0.0) -> RecordedValue:
    """The old place of each new element, `int64[new]`. They are counted as integers: float32 has not all above 2^24."""
    numbers: ir.Value = op.Cast(op.Range(0, axes.scalar(wanted), 1), to=ir.DataType.FLOAT)
    if middle:
        numbers = op.Add(numbers, middle)
    step: ir.Value
    if scale is not None:
        step = op.Constant(value_float=1.0 / scale)
    else:
        step = op.Div(op.Cast(length, to=ir.DataType.FLOAT), op.Cast(wanted, to=ir.DataType.FLOAT))
    # Numbers that are not negative: a cast to integers rounds them down.
    places = op.Cast(op.Mul(numbers, step), to=ir.DataType.INT64)
    return places if scale is None or scale <= _LIMITED else op.Min(places, op.Sub(length, [1]))


def _takes_the_same(length: int | None, wanted: int | None, scale: float | None, *, by_size: bool) -> bool:
    """Whether Resize takes the elements that torch takes along an axis, of whatever length where it is free.

    onnxruntime copies an axis that keeps its length, whatever the scale is.
    """
    if by_size or scale is None:
        if length is None or wanted is None:
            return False
        if not wanted or not length:
            return True
        by = np.float32(wanted) / np.float32(length)
    elif not counts_alike(length, scale) or (length is None and 1.0 < scale < 1.5):
        return False
    else:
        by = np.float32(1.0 if wanted == length is not None else scale)
    step = np.float32(length or 0) / np.float32(wanted or 1) if scale is None else np.float32(1.0 / scale)
    numbers = np.arange(LONGEST if wanted is None else wanted).astype(np.float32)
    last = np.inf if length is None else length - 1
    by_torch = np.minimum(np.floor(numbers * step), last)
    return bool((by_torch == np.minimum(np.floor(numbers / by), last)).all())


def _nearest(
    self: ir.Value, output_size: Sequence[Size] | None, scales: Sequence[float | None], *, has_small: bool = False
) -> ir.Value:
    """The elements at floor(i * step).

    Args:
        self: `[batch, channels, ...]`.
        output_size: the new lengths, None where the scales decide.
        scales: the scales, of which torch takes the steps also where sizes are given.
        has_small: whether it is the kernel that copies small images along an axis that keeps its length, or doubles.
            Source: seen in torch 2.13 on the CPU, where 1.2 times four elements are these four, but not in a large
            image.
    """
    old = [axes.fixed_size(self, 2 + place) for place in range(len(scales))]
    by_scale = (None if at is None or by is None else int(at * by) for at, by in zip(old, scales, strict=True))
    new = [size if isinstance(size, int) else None for size in (output_size or by_scale)]
    special = [
        (place, factor)
        for place, scale in enumerate(scales)
        for factor in (1, 2)
        if has_small and scale is not None and output_size is None and may_keep(self, 2 + place, scale, factor)
    ]
    lengths = new_lengths(self, output_size, scales)
    by_size = output_size is not None
    if not special and all(_takes_the_same(*one, by_size=by_size) for one in zip(old, new, scales, strict=True)):
        return _resized(self, lengths, scales, by_size=by_size)
    is_small = op.LessOrEqual(op.Add(*lengths), op.Constant(value_ints=[_SMALL])) if special else None
    result: ir.Value = self
    for place in _order(old, new, scales):
        wanted, scale = lengths[place], scales[place]
        if scale == 1.0 and output_size is None:
            continue
        length = axes.size(self, 2 + place)
        places = _places(length, wanted, scale)
        for factor in (one for at, one in special if at == place):
            assert is_small is not None
            doubles = op.And(is_small, op.Equal(wanted, op.Mul(length, [factor])))
            places = op.Where(doubles, op.Div(op.Range(0, axes.scalar(wanted), 1), factor), places)
        result = _taken(result, places, 2 + place, 1 + len(scales))
    return result


def _taken(self: ir.Value, places: ir.Value, axis: int, last: int) -> RecordedValue:
    """The elements at these places of an axis; `last` is the number of the last one.

    A Gather along the last axis copies single elements, which takes up to fifteen times as long as the two Transposes
    and the Gather of whole slices that are written instead.
    """
    if axis != last:
        return op.Gather(self, places, axis=axis)
    slices = op.Gather(op.Transpose(self, perm=[0, last, *range(1, last)]), places, axis=1)
    return op.Transpose(slices, perm=[0, *range(2, last + 1), 1])


def _order(old: Sequence[int | None], new: Sequence[int | None], scales: Sequence[float | None]) -> Sequence[int]:
    """The order of the axes in which the fewest elements are moved.

    Along the last axis elements are moved one by one, along another whole rows. So the last axis comes first, while
    the others are still short; it comes last where they are known to become shorter.
    """
    ratio = 1.0
    for before, after, scale in list(zip(old, new, scales, strict=True))[:-1]:
        if before and after is not None:
            ratio *= after / before
        elif scale is not None:
            ratio *= scale
    places = range(len(scales))
    return places if ratio < 1.0 else places[::-1]


def _resized(
    self: ir.Value, lengths: Sequence[ir.Value], scales: Sequence[float | None], *, by_size: bool
) -> RecordedValue:
    given = [scale for scale in scales if scale is not None]
    if not by_size and len(given) == len(scales):
        return op.Resize(
            self, None, op.Constant(value_floats=[1.0, 1.0, *given]), mode="nearest",
            coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip
    sizes = op.Concat(op.Shape(self, end=2), *lengths, axis=0)
    return op.Resize(
        self, None, None, sizes, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


@lowering("aten::upsample_nearest1d.vec", "aten::upsample_nearest3d.vec")
def nearest(
    input: ir.Value, output_size: Sequence[Size] | None = None, scale_factors: Sequence[float] | None = None
) -> ir.Value:
    """The nearest elements, by sizes or by scales."""
    scales: Sequence[float | None] = scale_factors or [None] * (axes.rank(input) - 2)
    return _nearest(input, output_size, scales)


@lowering("aten::upsample_nearest2d.vec")
def nearest_of_images(
    input: ir.Value, output_size: Sequence[Size] | None = None, scale_factors: Sequence[float] | None = None
) -> ir.Value:
    """The nearest elements of images, by sizes or by scales."""
    return _nearest(input, output_size, scale_factors or [None, None], has_small=True)


@lowering("aten::upsample_nearest1d", "aten::upsample_nearest2d", "aten::upsample_nearest3d")
def nearest_by_size(
    self: ir.Value,
    output_size: Sequence[Size],
    scales_0: float | None = None,
    scales_1: float | None = None,
    scales_2: float | None = None,
) -> ir.Value:
    """The nearest elements; the sizes are given, and perhaps the scales that they come from."""
    return _nearest(self, output_size, [scales_0, scales_1, scales_2][: axes.rank(self) - 2])


def _nearest_exact(
    self: ir.Value, output_size: Sequence[Size] | None, lengths: Sequence[ir.Value], scales: Sequence[float | None]
) -> ir.Value:
    result: ir.Value = self
    old = [axes.fixed_size(self, 2 + place) for place in range(len(scales))]
    new = [size if isinstance(size, int) else None for size in (output_size or scales)]
    for place in _order(old, new, scales):
        wanted, scale = lengths[place], scales[place]
        places = _places(axes.size(self, 2 + place), wanted, scale, middle=0.5)
        result = _taken(result, places, 2 + place, 1 + len(scales))
    return result


@lowering(
    "aten::_upsample_nearest_exact1d.vec", "aten::_upsample_nearest_exact2d.vec", "aten::_upsample_nearest_exact3d.vec"
)  # fmt: skip
def nearest_exact(
    input: ir.Value, output_size: Sequence[Size] | None, scale_factors: Sequence[float] | None = None
) -> ir.Value:
    """The nearest elements, by sizes or by scales."""
    scales: Sequence[float | None] = scale_factors or [None] * (axes.rank(input) - 2)
    return _nearest_exact(input, output_size, new_lengths(input, output_size, scales), scales)


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
    return _nearest_exact(self, output_size, new_lengths(self, output_size, ()), given)
