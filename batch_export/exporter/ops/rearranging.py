"""Flattening, rolling and unfolding with sizes that are computed, so that an empty batch goes through.

A Reshape to -1 is refused by onnxruntime where another size is 0, and a remainder by a size of 0 has no value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


def _sizes(self: ir.Value, start: int, end: int) -> RecordedValue:
    """The sizes of the axes from `start` to `end` as `int64[end - start]`."""
    return op.Shape(self, start=start, end=end)


@lowering("aten::flatten.using_ints")
def flatten(self: ir.Value, start_dim: int = 0, end_dim: int = -1) -> RecordedValue:
    """`aten::flatten`: neighbouring axes become one."""
    count = axes.rank(self)
    if count == 0:
        return op.Reshape(self, [1])
    start, end = axes.axis(self, start_dim), axes.axis(self, end_dim)
    if start == end:
        return op.Identity(self)
    if (start, end) == (0, count - 1):
        return op.Reshape(self, [-1])
    if (start, end) == (1, count - 1):
        return op.Flatten(self, axis=1)
    if (start, end) == (0, count - 2):
        return op.Flatten(self, axis=end + 1)
    behind = [axes.fixed_size(self, axis) for axis in range(end + 1, count)]
    if all(axes.never_empty(self, axis) for axis in range(start)) and all(behind):
        return op.Reshape(self, [*[0] * start, -1, *(size for size in behind if size)])
    merged = op.ReduceProd(_sizes(self, start, end + 1), keepdims=1)
    parts = [_sizes(self, 0, start), merged, _sizes(self, end + 1, count)]
    return axes.reshaped(self, [part for part, size in zip(parts, (start, 1, count - 1 - end), strict=True) if size])


@lowering("aten::unflatten.int")
def unflatten(self: ir.Value, dim: int, sizes: Sequence[Size]) -> RecordedValue:
    """`aten::unflatten`: one axis becomes several; a size of -1 is what the others leave of it."""
    count, place = axes.rank(self), axes.axis(self, dim)
    length, rest = axes.fixed_size(self, place), [size for size in sizes if not _is_open(size)]
    left: Size = -1
    if len(rest) < len(sizes) and not all(axes.never_empty(self, axis) for axis in range(count)):
        known = [size for size in rest if isinstance(size, int)]
        others = math.prod(known)
        if length is not None and len(known) == len(rest) and others:
            left = length // others
        else:
            product = op.ReduceProd(op.Concat(*map(_as_size, rest), axis=0), keepdims=1) if rest else _as_size(1)
            left = op.Div(axes.size(self, place), product)
    inner = [_as_size(left if _is_open(size) else size) for size in sizes]
    before = [_sizes(self, 0, place)] if place else []
    behind = [_sizes(self, place + 1, count)] if place + 1 < count else []
    return axes.reshaped(self, [*before, *inner, *behind])


def _is_open(size: Size) -> bool:
    return isinstance(size, int) and size == -1


def _as_size(size: Size) -> ir.Value:
    """A size as `int64[1]`."""
    return op.Constant(value_ints=[size]) if isinstance(size, int) else op.Reshape(size, [1])


@lowering("aten::roll")
def roll(self: ir.Value, shifts: Sequence[Size] | Size, dims: Sequence[int] | int = ()) -> ir.Value:
    """`aten::roll`: what leaves an axis at one end comes in at the other; without axes the whole, flattened."""
    listed = [shifts] if isinstance(shifts, (int, ir.Value)) else list(shifts)
    wanted = [dims] if isinstance(dims, int) else list(dims)
    if axes.rank(self) == 0:
        return op.Identity(self)
    if not wanted:
        return op.Reshape(_rolled(axes.flat(self), listed[0], 0), op.Shape(self), allowzero=1)
    result: ir.Value = self
    for shift, dim in zip(listed, wanted, strict=True):
        result = axes.shaped(_rolled(result, shift, axes.axis(self, dim)), self.shape)
    return result


@lowering("aten::roll", is_complex=True)
def roll_pairs(self: ir.Value, shifts: Sequence[Size] | Size, dims: Sequence[int] | int = ()) -> RecordedValue:
    """The same of complex numbers; their two parts are no axis that moves."""
    listed = [shifts] if isinstance(shifts, (int, ir.Value)) else list(shifts)
    wanted = [dims] if isinstance(dims, int) else list(dims)
    count = axes.rank(self) - 1
    if count == 0:
        return op.Identity(self)
    if not wanted:
        return op.Reshape(_rolled(op.Reshape(self, [-1, 2]), listed[0], 0), op.Shape(self), allowzero=1)
    result: RecordedValue = op.Identity(self)
    for shift, dim in zip(listed, wanted, strict=True):
        result = axes.shaped(_rolled(result, shift, dim % count), self.shape)
    return result


def _rolled(self: ir.Value, shift: Size, position: int) -> RecordedValue:
    length = op.Shape(self, start=position, end=position + 1)
    back = op.Neg(op.Reshape(shift, [1])) if isinstance(shift, ir.Value) else [-shift]
    cut = op.Mod(back, op.Max(length, [1]))  # 1 in place of 0: the remainder by 0 is refused
    return op.Concat(op.Slice(self, cut, [2**62], [position]), op.Slice(self, [0], cut, [position]), axis=position)


def _starts(
    self: ir.Value, axis: int, kernel: int, dilation: int, padding: int, stride: int
) -> tuple[RecordedValue, RecordedValue | list[int]]:
    """Places that the windows of an axis read, `int64[kernel, windows]`, and the number of windows, `int64[1]`."""
    span = dilation * (kernel - 1) + 1
    within = np.arange(kernel, dtype=np.int64)[:, None] * dilation
    length = axes.fixed_size(self, axis)
    if length is not None:
        windows = max(0, (length + 2 * padding - span) // stride + 1)
        places = within + np.arange(windows, dtype=np.int64)[None, :] * stride
        return op.Constant(value=ir.tensor(places)), [windows]
    count = op.Add(op.Div(op.Add(axes.size(self, axis), [2 * padding - span]), [stride]), [1])
    first = op.Mul(op.Range(0, axes.scalar(count), 1), [stride])
    return op.Add(op.Constant(value=ir.tensor(within)), op.Unsqueeze(first, [0])), count


@lowering("aten::unfold")
def unfold(self: ir.Value, dimension: int, size: int, step: int) -> RecordedValue:
    """`aten::unfold`: the windows along an axis, their elements last; one that is too short for a window is an error.

    There the first window reads beyond the end, which a runtime refuses as eager refuses the size.
    """
    if axes.rank(self) == 0:
        return op.Reshape(self, [1])
    place, count = axes.axis(self, dimension), axes.rank(self)
    within = op.Constant(value=ir.tensor(np.arange(size, dtype=np.int64)[None, :]))
    length = axes.fixed_size(self, place)
    behind = op.Max(op.Sub(axes.scalar(axes.size(self, place)), size - 1), 1) if length is None else length - size + 1
    places = op.Add(op.Unsqueeze(op.Range(0, behind, step), [1]), within)
    order = [axis for axis in range(count + 1) if axis != place + 1]
    return op.Transpose(op.Gather(self, places, axis=place), perm=[*order, place + 1])


@lowering("aten::im2col")
def im2col(
    self: ir.Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    stride: Sequence[int] = (1, 1),
) -> RecordedValue:
    """`aten::im2col`: the windows of an image as columns, `float[batch, channels * kernel, windows]`."""
    if axes.rank(self) == 3:
        batch = axes.shaped(op.Unsqueeze(self, [0]), [1, *list(self.shape or ())])
        columns = im2col(batch, kernel_size, dilation, padding, stride)
        return op.Squeeze(columns, [0])
    spreads = ([value] * 2 if isinstance(value, int) else list(value) for value in (dilation, padding, stride))
    (dilate_h, dilate_w), (pad_h, pad_w), (step_h, step_w) = spreads
    kernel_h, kernel_w = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    rows, high = _starts(self, 2, kernel_h, dilate_h, pad_h, step_h)
    across, wide = _starts(self, 3, kernel_w, dilate_w, pad_w, step_w)
    pads = [pad_h, pad_w]
    padded = axes.padded(self, pads, pads, [2, 3], axes.like(0, self)) if pad_h or pad_w else self
    taken = op.Gather(op.Gather(padded, rows, axis=2), across, axis=4)
    taken = op.Transpose(taken, perm=[0, 1, 2, 4, 3, 5])
    channels = op.Mul(axes.size(self, 1), [kernel_h * kernel_w])
    return axes.reshaped(taken, [_sizes(self, 0, 1), channels, op.Mul(high, wide)])


@lowering("aten::col2im")
def col2im(
    self: ir.Value,
    output_size: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    stride: Sequence[int] = (1, 1),
) -> RecordedValue:
    """`aten::col2im`: columns `float[batch, channels * kernel, windows]`, or without a batch, added up as an image."""
    if axes.rank(self) == 2:
        batch = axes.shaped(op.Unsqueeze(self, [0]), [1, *list(self.shape or ())])
        return op.Squeeze(col2im(batch, output_size, kernel_size, dilation, padding, stride), [0])
    dilations, pads, strides = ([one] * 2 if isinstance(one, int) else list(one) for one in (dilation, padding, stride))
    pads = (pads * 2)[:4]
    return op.Col2Im(self, list(output_size), list(kernel_size), dilations=dilations, pads=pads, strides=strides)


def _last_two_swapped(self: ir.Value, trailing: int) -> RecordedValue:
    """The last two axes before `trailing` others, swapped; a scalar has none and stays."""
    count = axes.rank(self) - trailing
    if count < 2:
        return op.Identity(self)
    order = [*range(count - 2), count - 1, count - 2, *range(count, count + trailing)]
    return op.Transpose(self, perm=order)


@lowering("aten::mT", "aten::mH", "aten::adjoint")
def matrix_transpose(self: ir.Value) -> RecordedValue:
    """Every matrix transposed, which of real numbers is the adjoint too."""
    return _last_two_swapped(self, 0)


@lowering("aten::mT", is_complex=True)
def matrix_transpose_complex(self: ir.Value) -> RecordedValue:
    """Every matrix of complex numbers transposed."""
    return _last_two_swapped(self, 1)


_Sizes = Sequence[int] | ir.Value
"""Sizes that are known, or `int64[n]`."""


def _by_squares(self: ir.Value, sizes: Sequence[_Sizes], order: Sequence[int], merged: Sequence[_Sizes]) -> ir.Value:
    """An image with its last axes divided as the sizes say, these in another order, and merged."""
    lead = axes.rank(self) - 3
    before = [_sizes(self, 0, lead)] if lead else []
    divided = axes.reshaped(self, [*before, *map(_listed, sizes)])
    turned = op.Transpose(divided, perm=[*range(lead), *(lead + place for place in order)])
    return axes.reshaped(turned, [*before, *map(_listed, merged)])


def _listed(sizes: _Sizes) -> ir.Value:
    return sizes if isinstance(sizes, ir.Value) else op.Constant(value_ints=list(sizes))


def _size_of(self: ir.Value, dim: int) -> _Sizes:
    """The size of an axis as a list of one number, or as `int64[1]` where it is free."""
    known = axes.fixed_size(self, dim)
    return axes.size(self, dim) if known is None else [known]


def _divided(size: _Sizes, by: int) -> _Sizes:
    return op.Div(size, [by]) if isinstance(size, ir.Value) else [size[0] // by]


def _times(size: _Sizes, by: int) -> _Sizes:
    return op.Mul(size, [by]) if isinstance(size, ir.Value) else [size[0] * by]


@lowering("aten::movedim.int", "aten::movedim.intlist")
def movedim(self: ir.Value, source: int | Sequence[int], destination: int | Sequence[int]) -> ir.Value:
    """`aten::movedim`: some axes at other places, the rest in their order; torch's own form asks for sizes of 1."""
    count = axes.rank(self)
    if count == 0:
        return op.Identity(self)
    sources, places = (
        [axes.axis(self, one) for one in ([given] if isinstance(given, int) else given)]
        for given in (source, destination)
    )
    moved = dict(zip(places, sources, strict=True))
    rest = iter([axis for axis in range(count) if axis not in sources])
    return op.Transpose(self, perm=[moved[place] if place in moved else next(rest) for place in range(count)])


@lowering("aten::pixel_unshuffle")
def pixel_unshuffle(self: ir.Value, downscale_factor: int) -> ir.Value:
    """The pixels of each square of an image (`[..., C, H, W]`) as channels; any size may be 0."""
    by = downscale_factor
    channels, height, width = (_size_of(self, dim) for dim in (-3, -2, -1))
    height, width = _divided(height, by), _divided(width, by)
    sizes: list[_Sizes] = [channels, height, [by], width, [by]]
    return _by_squares(self, sizes, (0, 2, 4, 1, 3), [_times(channels, by * by), height, width])


@lowering("aten::pixel_shuffle")
def pixel_shuffle(self: ir.Value, upscale_factor: int) -> ir.Value:
    """Channels (`[..., C, H, W]`) as the pixels of squares; any size may be 0."""
    by = upscale_factor
    if axes.rank(self) == 4 and 0 not in list(self.shape or ()):
        return op.DepthToSpace(self, blocksize=by, mode="CRD")
    channels, height, width = (_size_of(self, dim) for dim in (-3, -2, -1))
    channels = _divided(channels, by * by)
    sizes: list[_Sizes] = [channels, [by, by], height, width]
    return _by_squares(self, sizes, (0, 3, 1, 4, 2), [channels, _times(height, by), _times(width, by)])
