"""Convolution, and transposed convolution with every output padding that torch allows.

torchlib gives volumes without a bias one of two axes, which ONNX does not define, and lists of one stride as they are,
which runtimes refuse where there are more axes.

ONNX Runtime wants the output padding below the stride, and torch below the stride or the dilation. The padding
lengthens the output at its end: first by what `padding` cuts off there, then by positions that no input reaches, which
hold the bias alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


def _per_axis(given: Sequence[int] | int, count: int) -> list[int]:
    listed = [given] if isinstance(given, int) else list(given)
    return listed * count if len(listed) == 1 else listed


def _kernel(weight: ir.Value) -> dict[str, list[int]]:
    """The attribute that names the kernel's sizes, where they are known."""
    sizes = [axes.fixed_size(weight, axis) for axis in range(2, axes.rank(weight))]
    known = [size for size in sizes if size is not None]
    return {"kernel_shape": known} if len(known) == len(sizes) else {}


@lowering("aten::conv1d", "aten::conv2d", "aten::conv3d")
def conv(
    input: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> RecordedValue:
    """`[batch, channels, ...]`, or without a batch; one stride, padding or dilation is for all axes."""
    return convolution(input, weight, bias, stride, padding, dilation, False, (0,), groups)


@lowering("aten::conv_transpose1d", "aten::conv_transpose2d.input", "aten::conv_transpose3d.input")
def conv_transpose(
    input: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[Size] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> RecordedValue:
    """`[batch, channels, ...]` or `[channels, ...]`; the extra length at the end is `output_padding`.

    Where that is known only when the model runs (`output_size=x.shape`), the longest output is made and cut.
    """
    count = axes.rank(weight) - 2
    strides, pads, dilations = (_per_axis(given, count) for given in (stride, padding, dilation))
    asked = [*output_padding] * (count if len(output_padding) == 1 else 1)
    longest = [max(pair) - 1 for pair in zip(strides, dilations, strict=True)]  # torch wants less than the larger one
    extra = [one if isinstance(one, int) else most for one, most in zip(asked, longest, strict=True)]
    is_single = axes.rank(input) == count + 1
    data = op.Unsqueeze(input, [0]) if is_single else input
    ends = [max(pad - more, 0) for pad, more in zip(pads, extra, strict=True)]
    beyond = [max(more - pad, 0) for pad, more in zip(pads, extra, strict=True)]
    options = {"strides": strides, "pads": [*pads, *ends], "dilations": dilations, "group": groups} | _kernel(weight)
    if not any(beyond):
        result = op.ConvTranspose(data, weight, bias, **options)
    else:
        result = op.Pad(op.ConvTranspose(data, weight, None, **options), [*[0] * (count + 4), *beyond])
        if bias is not None:
            result = op.Add(result, op.Reshape(bias, [1, -1, *[1] * count]))
    for axis, (one, most) in enumerate(zip(asked, longest, strict=True), start=2):
        if not isinstance(one, int):
            end = op.Add(op.Shape(result, start=axis, end=axis + 1), op.Sub(op.Reshape(one, [1]), [most]))
            result = op.Slice(result, [0], end, [axis])
    return op.Squeeze(result, [0]) if is_single else result


@lowering("aten::convolution")
def convolution(
    input: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: int,
) -> RecordedValue:
    """Any of these, as which torch writes convolutions of complex numbers."""
    if transposed:
        return conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation)
    count = axes.rank(weight) - 2
    strides, pads, dilations = (_per_axis(given, count) for given in (stride, padding, dilation))
    is_single = axes.rank(input) == count + 1
    data = op.Unsqueeze(input, [0]) if is_single else input
    options = {"strides": strides, "pads": [*pads, *pads], "dilations": dilations, "group": groups} | _kernel(weight)
    result = op.Conv(data, weight, bias, **options)
    return op.Squeeze(result, [0]) if is_single else result


@lowering("aten::_convolution", "aten::_convolution.deprecated")
def convolution_with_flags(
    input: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: int,
    benchmark: bool = False,
    deterministic: bool = False,
    cudnn_enabled: bool = False,
    allow_tf32: bool = False,
) -> RecordedValue:
    """The same as a model may call it itself, with settings of CUDA's library, which change no result here."""
    return convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@lowering("aten::conv_tbc")
def conv_tbc(self: ir.Value, weight: ir.Value, bias: ir.Value, pad: int = 0) -> RecordedValue:
    """`aten::conv_tbc`: a convolution over the first axis of steps, batch and channels."""
    data, kernel = op.Transpose(self, perm=[1, 2, 0]), op.Transpose(weight, perm=[2, 1, 0])
    return op.Transpose(op.Conv(data, kernel, bias, pads=[pad, pad]), perm=[2, 0, 1])
