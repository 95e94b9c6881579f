"""Convolution and pooling of float64 as gathered windows and one matrix product; onnxruntime has no kernels for it.

Arrives: the inputs and attributes of ONNX's Conv, ConvTranspose and AveragePool. Leaves: their result in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict, Unpack

import numpy as np
import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes


class Attributes(TypedDict, total=False):
    """What ONNX's operators are told of their windows."""

    auto_pad: str
    count_include_pad: int
    dilations: Sequence[int]
    group: int
    kernel_shape: Sequence[int]
    output_padding: Sequence[int]
    pads: Sequence[int]
    strides: Sequence[int]


def _nothing(value: ir.Value) -> RecordedValue:
    return axes.like(0.0, value)


def _ints(numbers: Sequence[int]) -> RecordedValue:
    return op.Constant(value_ints=list(numbers))


def _around(value: ir.Value, count: int, pads: Sequence[int]) -> ir.Value:
    """Zeros before and after the last `count` axes; negative numbers cut."""
    if not any(pads):
        return value
    return op.Pad(value, [0, 0, *pads[:count], 0, 0, *pads[count:]], _nothing(value))


def _windows(value: ir.Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> RecordedValue:
    """`[batch, channels, ...]` as `[batch, channels, *kernel, *windows]`."""
    count = len(kernel)
    result = value
    for place in reversed(range(count)):
        span = dilations[place] * (kernel[place] - 1) + 1
        length = op.Shape(value, start=2 + place, end=3 + place)
        windows = op.Add(op.Div(op.Sub(length, [span]), [strides[place]]), [1])
        first = op.Mul(op.Range(0, axes.scalar(windows), 1), [strides[place]])
        within = np.arange(kernel[place], dtype=np.int64)[:, None] * dilations[place]
        places = op.Add(op.Constant(value=ir.tensor(within)), op.Unsqueeze(first, [0]))
        result = op.Gather(result, places, axis=2 + place)
    inner = [2 + 2 * place for place in range(count)]
    return op.Transpose(result, perm=[0, 1, *inner, *(place + 1 for place in inner)])


def _plain(auto_pad: str | None) -> None:
    if auto_pad not in (None, "NOTSET", "VALID"):
        raise TranslationError(
            f"a convolution of float64 with auto_pad={auto_pad} has no form",
            operator="Conv",
            next_step="give the padding in numbers, or compute in float32",
        )


def _sizes(weight: ir.Value) -> list[int]:
    sizes = [] if weight.shape is None else list(weight.shape)
    if not sizes or not all(isinstance(size, int) for size in sizes):
        raise TranslationError(
            "a convolution of float64 needs weights of fixed sizes",
            operator="Conv",
            next_step="compute in float32, which runtimes have kernels for",
        )
    return [int(size) for size in sizes if isinstance(size, int)]


def convolution(
    value: ir.Value, weight: ir.Value, bias: ir.Value | None = None, **given: Unpack[Attributes]
) -> RecordedValue:
    """ONNX's Conv."""
    outputs, inputs, *kernel = _sizes(weight)
    count, groups = len(kernel), int(given.get("group") or 1)
    _plain(given.get("auto_pad"))
    ones = [1] * count
    padded = _around(value, count, list(given.get("pads") or [0] * 2 * count))
    taken = _windows(padded, kernel, given.get("strides") or ones, given.get("dilations") or ones)
    # The windows are columns beside those of the other samples: an empty batch broadcasts nowhere.
    columns = op.Transpose(taken, perm=[*range(1, 2 + count), 0, *range(2 + count, 2 + 2 * count)])
    behind = op.Shape(columns, start=1 + count, end=2 + 2 * count)
    number = op.ReduceProd(behind, keepdims=1)
    columns = axes.reshaped(columns, [_ints([groups, inputs * math.prod(kernel)]), number])
    rows = op.Reshape(weight, [groups, outputs // groups, inputs * math.prod(kernel)])
    product = axes.reshaped(op.MatMul(rows, columns), [_ints([outputs]), behind])
    result = op.Transpose(product, perm=[1, 0, *range(2, 2 + count)])
    return result if bias is None else op.Add(result, op.Reshape(bias, [-1, *ones]))


def transposed_convolution(
    value: ir.Value, weight: ir.Value, bias: ir.Value | None = None, **given: Unpack[Attributes]
) -> RecordedValue:
    """ONNX's ConvTranspose: the convolution of the input spread by the strides with the mirrored weights."""
    inputs, each, *kernel = _sizes(weight)
    count, groups = len(kernel), int(given.get("group") or 1)
    _plain(given.get("auto_pad"))
    ones = [1] * count
    strides, dilations = list(given.get("strides") or ones), list(given.get("dilations") or ones)
    extra = list(given.get("output_padding") or [0] * count)
    pads = list(given.get("pads") or [0] * 2 * count)
    spread: ir.Value = value
    for place in range(count):
        if strides[place] > 1:
            apart = op.Unsqueeze(spread, [3 + place])
            before = [0] * (count + 3)
            after = [strides[place] - 1 if axis == 3 + place else 0 for axis in range(count + 3)]
            apart = op.Pad(apart, [*before, *after], _nothing(value))
            parts = [
                op.Shape(spread, start=0, end=2 + place),
                op.Mul(op.Shape(spread, start=2 + place, end=3 + place), [strides[place]]),
            ]
            parts += [op.Shape(spread, start=3 + place)] if place + 1 < count else []
            spread = axes.reshaped(apart, parts)
    reach = [dilation * (size - 1) for dilation, size in zip(dilations, kernel, strict=True)]
    before = [reach[place] - pads[place] for place in range(count)]
    after = [reach[place] - pads[count + place] + extra[place] - strides[place] + 1 for place in range(count)]
    grouped = op.Reshape(weight, [groups, inputs // groups, each, *kernel])
    turned = op.Transpose(grouped, perm=[0, 2, 1, *range(3, 3 + count)])
    turned = op.Reshape(turned, [groups * each, inputs // groups, *kernel])
    mirrored = op.Slice(turned, [-1] * count, [-(2**62)] * count, list(range(2, 2 + count)), [-1] * count)
    axes.shaped(mirrored, [groups * each, inputs // groups, *kernel])
    return convolution(spread, mirrored, bias, pads=[*before, *after], dilations=dilations, group=groups)


def average_pool(value: ir.Value, **given: Unpack[Attributes]) -> RecordedValue:
    """ONNX's AveragePool."""
    kernel = list(given["kernel_shape"])
    count = len(kernel)
    ones = [1] * count
    pads = list(given.get("pads") or [0] * 2 * count)
    strides, dilations = list(given.get("strides") or ones), list(given.get("dilations") or ones)
    inner = list(range(2, 2 + count))

    def sums(numbers: ir.Value) -> RecordedValue:
        return op.ReduceSum(_windows(_around(numbers, count, pads), kernel, strides, dilations), inner, keepdims=0)

    if given.get("count_include_pad") or not any(pads):
        return op.Div(sums(value), axes.like(float(math.prod(kernel)), value))
    shape = op.Concat([1, 1], op.Shape(value, start=2), axis=0)
    return op.Div(sums(value), sums(op.Expand(axes.like(1.0, value), shape)))
