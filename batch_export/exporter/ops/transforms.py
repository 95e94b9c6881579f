"""Fourier transforms back to real numbers, whose length may be free."""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def _factor(size: Size, normalization: int, like: ir.Value) -> RecordedValue:
    if isinstance(size, int):
        return op.CastLike(math.sqrt(size) if normalization == _BY_ROOT else float(size), like)
    number = op.CastLike(size, like)
    return op.Sqrt(number) if normalization == _BY_ROOT else number
