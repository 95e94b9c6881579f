"""Fourier transforms from and to real numbers, whose length may be free.

What has to be real of a transform of real numbers is so to the last bit: eager's imaginary part is 0.0 at frequency 0,
and at the middle one of an even length, and runtimes give -0.0 or what roundings leave, which turns an angle of pi.
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

_NOT_SCALED, _BY_ROOT = 0, 1
"""torch's numbers for what the sums are divided by; any other: by the number of elements, as ONNX does."""


@lowering("aten::_fft_c2r", is_complex=True)
def complex_to_real(self: ir.Value, dim: Sequence[int], normalization: int, last_dim_size: Size) -> RecordedValue:
    """The inverse transform of what is conjugate to itself.

    Args:
        self: `complex[...]` as pairs.
        dim: the axes; along the last one stands one half.
        normalization: what the sums are divided by.
        last_dim_size: the length of the result along the last axis.
    """
    data, first = self, 0 in dim
    listed = [axis + 1 for axis in dim] if first else list(dim)
    if first:  # DFT's first axis is the batch
        data = op.Unsqueeze(data, [0])
    sizes: list[Size] = [axes.size(self, axis) for axis in dim[:-1]]
    for axis in listed[:-1]:
        data = op.DFT(data, axis=axis, inverse=1)
    last = listed[-1]
    data = op.DFT(data, last_dim_size, axis=last, inverse=1, onesided=1)
    if normalization in (_NOT_SCALED, _BY_ROOT):
        for size in (*sizes, last_dim_size):
            data = op.Mul(data, _factor(size, normalization, data))
    data = op.Squeeze(op.Slice(data, [0], [1], [-1]), [-1])  # the real part
    return op.Squeeze(data, [0]) if first else data


@lowering("aten::_fft_r2c")
def real_to_complex(self: ir.Value, dim: Sequence[int], normalization: int, onesided: bool) -> RecordedValue:
    """The transform of real numbers.

    Args:
        self: the numbers.
        dim: the axes; of the last one there is one half, or all.
        normalization: what the sums are divided by.
        onesided: whether there is one half.
    """
    from onnxscript.function_libs.torch_lib.ops import fft  # lazy: a second and more to import

    made: RecordedValue = fft.aten__fft_r2c(self, dim, normalization, onesided)
    *others, last = (axes.axis(self, one) for one in dim)
    real = _are_real(_length(self, last), axes.rank(self) - last, onesided=onesided)
    if not others:
        return op.Where(real, op.CastLike(0.0, made), made)
    for axis in others:  # of which eager's sums at frequency 0 add zeros
        places = op.Range(0, axes.scalar(axes.size(self, axis)), 1)
        real = op.And(real, op.Equal(_along(places, axes.rank(self) - axis), 0))
    return op.Where(real, op.Sub(made, made), made)


@lowering("aten::stft")
def short_time_transform(
    self: ir.Value,
    n_fft: Size,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: ir.Value | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
) -> RecordedValue:
    """The transforms of windows of a signal.

    Args:
        self: the signal, of real numbers.
        n_fft: the length of a transform.
        hop_length: from one window to the next.
        win_length: the length of what a window leaves.
        window: its weights.
        normalized: whether sums are divided by the root of the length.
        onesided: whether there is one half.
        return_complex: whether the result is complex; it is given as pairs.
    """
    from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

    made: RecordedValue = core.aten_stft(
        self, n_fft, hop_length, win_length, window, normalized, onesided, return_complex
    )
    real = _are_real(n_fft, 2, onesided=onesided is not False)
    return op.Where(real, op.CastLike(0.0, made), made)


def _are_real(length: Size, behind: int, *, onesided: bool) -> RecordedValue:
    """Which numbers of pairs are imaginary parts that are 0.

    Args:
        length: of the transform.
        behind: how many axes there are behind the one of the frequencies, with that of the pairs.
        onesided: whether there is one half.
    """
    if isinstance(length, int) and length <= _LONGEST:
        places = np.arange(length // 2 + 1 if onesided else length) * 2 % max(length, 1) == 0
        known = np.stack([np.zeros_like(places), places], -1).reshape(-1, *[1] * (behind - 1), 2)
        return op.Constant(value=ir.tensor(known))
    stop = op.Add(length, 1) if onesided else op.Mul(length, 2)
    doubled = op.Range(0, stop, 2)
    is_real = _along(op.Equal(op.Mod(doubled, length), 0), behind)
    return op.And(is_real, op.Constant(value=ir.tensor(np.array([False, True]))))


_LONGEST = 4096
"""The longest transform for which the file says them one by one."""


def _along(values: RecordedValue, behind: int) -> RecordedValue:
    """Values of one axis, with axes behind it."""
    return op.Unsqueeze(values, [*range(1, behind + 1)])


def _length(value: ir.Value, axis: int) -> Size:
    fixed = axes.fixed_size(value, axis)
    return axes.scalar(axes.size(value, axis)) if fixed is None else fixed


def _factor(size: Size, normalization: int, like: ir.Value) -> RecordedValue:
    if isinstance(size, int):
        return op.CastLike(math.sqrt(size) if normalization == _BY_ROOT else float(size), like)
    number = op.CastLike(size, like)
    return op.Sqrt(number) if normalization == _BY_ROOT else number
