"""Layer and group normalisation that give mean and 1 / deviation too, as torch's own operators below the layers do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops.axes import fixed_size, like, rank, shaped
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.normalisation import group_norm, layer_norm

_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_Statistics = tuple[RecordedValue, RecordedValue, RecordedValue]


def _statistics(data: ir.Value, last: list[int], eps: float, *, keepdims: int) -> tuple[RecordedValue, RecordedValue]:
    """Mean and 1 / deviation over some of the last axes: 0 and NaN of nothing, as in torch."""
    wide = shaped(op.Cast(data, to=ir.DataType.FLOAT), data.shape) if data.dtype in _HALVES else data
    count = op.CastLike(op.ReduceProd(op.Shape(data, start=last[0]), keepdims=0), wide)
    mean = op.Div(op.ReduceSum(wide, last, keepdims=1), op.Max(count, like(1.0, wide)))
    centred = op.Sub(wide, mean)
    variance = op.Div(op.ReduceSum(op.Mul(centred, centred), last, keepdims=keepdims), count)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, like(eps, wide))))
    return mean if keepdims else op.Squeeze(mean, last), inverse


@lowering("aten::native_layer_norm")
def native_layer_norm(
    input: ir.Value,
    normalized_shape: Sequence[object],
    weight: ir.Value | None,
    bias: ir.Value | None,
    eps: float,
) -> _Statistics:
    """As `layer_norm`, with the statistics of each sample; one operator where it takes such tensors."""
    last = list(range(rank(input) - len(normalized_shape), rank(input)))
    sizes = [fixed_size(input, axis) for axis in last]
    if None not in sizes and 0 not in sizes and input.dtype not in _HALVES:
        from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

        write = cast("Callable[..., _Statistics]", core.aten_native_layer_norm)
        return write(input, normalized_shape, weight, bias, eps)
    out = layer_norm(input, normalized_shape, weight, bias, eps)
    return out, *_statistics(input, last, eps, keepdims=1)


@lowering("aten::native_group_norm")
def native_group_norm(
    input: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    N: int | ir.Value,  # noqa: N803 - torch's names
    C: int | ir.Value,  # noqa: N803
    HxW: int | ir.Value,  # noqa: N803
    group: int,
    eps: float,
) -> _Statistics:
    """As `group_norm`, with the statistics of each group; the tensor has the sizes that are given beside it."""
    del N, C, HxW
    out = group_norm(input, group, weight, bias, eps)
    each = op.Div(op.ReduceProd(op.Shape(input, start=1), keepdims=1), [group])
    sizes = op.Concat(op.Shape(input, start=0, end=1), op.Constant(value_ints=[group]), each, axis=0)
    groups = shaped(op.Reshape(input, sizes, allowzero=1), [None, group, None])
    return out, *_statistics(groups, [2], eps, keepdims=0)
