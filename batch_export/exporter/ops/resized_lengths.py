"""How long a resized axis is: by torch, which multiplies in float64, and by Resize, which does so in float32.

90 elements times 0.7 are 62 in torch and 63 in onnxruntime.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes

LONGEST = 1 << 16
"""The longest free axis for which a rule of onnxruntime is held against torch's."""


def number(value: float) -> RecordedValue:
    """A constant of float64."""
    return op.Constant(value=ir.tensor(value, dtype=ir.DataType.DOUBLE))


def wide(size: ir.Value) -> RecordedValue:
    """A size, `int64[1]`, as float64."""
    return op.Cast(size, to=ir.DataType.DOUBLE)


def new_lengths(
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
            # No number is negative, and a cast to integers rounds down.
            product = op.Mul(wide(axes.size(self, first + place)), number(scale))
            found.append(op.Cast(product, to=ir.DataType.INT64))
    return found


def may_keep(input: ir.Value, axis: int, scale: float, factor: int) -> bool:
    """Whether an axis of two elements or more, times the scale, can become exactly `factor` times as long."""
    length = axes.fixed_size(input, axis)
    if scale == factor or not factor < scale < factor + 0.5:
        return False
    return length is None or (length > 1 and int(length * scale) == factor * length)


def counts_alike(length: int | None, scale: float) -> bool:
    """Whether Resize gives as many elements as torch does.

    Args:
        length: the axis's old length, None for a free one.
        scale: the factor.
    """
    lengths = np.arange(LONGEST) if length is None else np.array([length])
    by_torch = np.floor(lengths.astype(np.float64) * scale)
    by_resize = np.floor(lengths.astype(np.float32) * np.float32(scale))
    return bool((by_torch == by_resize).all())


def rounded_up(scale: float) -> float:
    """The first number of float32 that is not below a scale: by it Resize gives as many elements or one more."""
    near = np.float32(scale)
    return float(near if float(near) >= scale else np.nextafter(near, np.float32(np.inf)))
