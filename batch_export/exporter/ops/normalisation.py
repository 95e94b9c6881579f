"""Normalisation layers: batch_norm as the operator that runtimes fuse and in training form, instances, groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import onnx_ir as ir

from batch_export.exporter.graph.operators import op, op20
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import error_function
from batch_export.exporter.ops.axes import fixed_size, like, never_empty, rank, shaped
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.reductions import mean_over


def _per_channel(input: ir.Value, fill: float) -> RecordedValue:
    assert input.shape is not None
    channels = input.shape[1]
    if isinstance(channels, int):
        return op.Constant(value=ir.tensor([fill] * channels, dtype=input.dtype))
    value = ir.tensor([fill], dtype=input.dtype)
    return op.ConstantOfShape(op.Shape(input, start=1, end=2), value=ir.serde.serialize_tensor(value))


@lowering("aten::batch_norm")
def batch_norm(
    input: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_var: ir.Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> RecordedValue:
    """`aten::batch_norm`: statistics of the batch when training (or when none are kept), the running ones otherwise."""
    weight = _per_channel(input, 1.0) if weight is None else weight
    bias = _per_channel(input, 0.0) if bias is None else bias
    if not training and running_mean is not None and running_var is not None:
        result: RecordedValue = op.BatchNormalization(input, weight, bias, running_mean, running_var, epsilon=eps)
        return result
    assert input.shape is not None
    axes = [axis for axis in range(len(input.shape)) if axis != 1]
    mean = mean_over(input, axes, keepdims=True)
    centred = op.Sub(input, mean)
    variance = mean_over(shaped(op.Mul(centred, centred), input.shape), axes, keepdims=True)
    normal = op.Div(centred, op.Sqrt(op.Add(variance, op.CastLike(eps, input))))
    trailing = [1] * (len(input.shape) - 2)
    return op.Add(op.Mul(normal, op.Reshape(weight, [-1, *trailing])), op.Reshape(bias, [-1, *trailing]))


def _of_a_row(self: ir.Value, dim: int, dtype: int | None, operator: Callable[..., RecordedValue]) -> RecordedValue:
    """An operator along an axis, computed in the dtype that is asked for, not cast to it afterwards."""
    data = self if dtype is None or dtype == self.dtype else shaped(op.Cast(self, to=dtype), self.shape)
    if rank(self) == 0:
        return op.Squeeze(operator(op.Unsqueeze(data, [0]), axis=0), [0])
    return operator(data, axis=dim)


@lowering("aten::softmax.int", "aten::special_softmax")
def softmax(self: ir.Value, dim: int, dtype: int | None = None) -> RecordedValue:
    """exp(x) over its sum along an axis."""
    return _of_a_row(self, dim, dtype, op.Softmax)


@lowering("aten::log_softmax.int", "aten::special_log_softmax")
def log_softmax(self: ir.Value, dim: int, dtype: int | None = None) -> RecordedValue:
    """The logarithm of softmax: NaN throughout a row with NaN or infinity, which onnxruntime loses of doubles."""
    return _of_a_row(self, dim, dtype, _log_softmax)


def _log_softmax(data: ir.Value, axis: int) -> RecordedValue:
    made: RecordedValue = op.LogSoftmax(data, axis=axis)
    if data.dtype != ir.DataType.DOUBLE:
        return made
    nothing, infinite, undefined = (
        op.Constant(value=ir.tensor(one, dtype=data.dtype)) for one in (0.0, math.inf, math.nan)
    )
    lost = op.Where(op.Less(data, infinite), nothing, undefined)
    return op.Add(made, op.ReduceSum(lost, [axis], keepdims=1))


@lowering("aten::gelu", opset=20)
def gelu(self: ir.Value, approximate: str = "none") -> RecordedValue:
    """`aten::gelu` as the operator of opset 20, which onnxruntime has for float32 and float16."""
    if self.dtype == ir.DataType.DOUBLE:
        return error_function.gelu(self, approximate)
    return op20.Gelu(self, approximate=approximate)


def _groups(input: ir.Value, count: object, sizes: ir.Value, rank: int) -> RecordedValue:
    """The input by groups; without elements as no samples: onnxruntime's kernel reads the first element of a sample.

    Args:
        count: how many groups; where it is no number known, each channel is one.
    """
    if all(never_empty(input, axis) for axis in range(1, len(input.shape or ()))):
        return op.Reshape(input, sizes, allowzero=1)
    if isinstance(count, int):
        none = op.Constant(value_ints=[0, count, *[1] * (rank - 2)])
    else:
        none = op.Concat([0], op.Shape(input, start=1, end=2), op.Constant(value_ints=[1] * (rank - 2)), axis=0)
    return op.Reshape(input, op.Where(op.Equal(op.Size(input), 0), none, sizes), allowzero=1)


@lowering("aten::group_norm")
def group_norm(
    input: ir.Value,
    num_groups: int,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> RecordedValue:
    """`aten::group_norm`: each group of channels of each sample by its own mean and variance."""
    assert input.shape is not None
    if 0 in list(input.shape):  # onnxruntime's kernel of halves reads the first element
        return op.Identity(input)
    behind = [size for size in list(input.shape)[1:] if isinstance(size, int)]
    assert input.shape is not None
    channels = input.shape[1]
    apart = 1
    is_free = len(behind) < len(input.shape) - 1
    if is_free and all(never_empty(input, axis) for axis in range(len(input.shape))):
        groups = op.Reshape(input, [0, num_groups, -1])
    elif is_free and input.shape[0] and isinstance(input.shape[0], int):
        groups = _groups(input, num_groups, op.Constant(value_ints=[input.shape[0], num_groups, -1]), 3)
    elif input.shape[0] and isinstance(input.shape[0], int):
        groups = op.Reshape(input, [0, num_groups, -1])
    elif not is_free:  # not -1, which onnxruntime refuses for an empty batch
        groups = op.Reshape(input, [0, num_groups, math.prod(behind) // num_groups])
    elif isinstance(channels, int) and len(input.shape) > 2:  # a group's channels are more of the next axis
        each, apart = channels // num_groups, len(input.shape) - 2
        others = [1] * (apart - 1)
        sizes = op.Mul(op.Div(op.Shape(input), [1, each, 1, *others]), [1, 1, each, *others])
        groups = _groups(input, num_groups, sizes, len(input.shape))
    else:
        part = op.Div(op.ReduceProd(op.Shape(input, start=1), keepdims=1), [num_groups])
        sizes = op.Concat(op.Shape(input, start=0, end=1), op.Constant(value_ints=[num_groups]), part, axis=0)
        groups = _groups(input, num_groups, sizes, 3)
    shaped(groups, [None if is_free else input.shape[0], num_groups, *[None] * apart])
    ones, zeros = (op.Constant(value=ir.tensor([fill] * num_groups, dtype=input.dtype)) for fill in (1.0, 0.0))
    result = op.Reshape(op.InstanceNormalization(groups, ones, zeros, epsilon=eps), op.Shape(input))
    trailing = [1] * (len(input.shape) - 2)
    if weight is not None:
        result = op.Mul(result, op.Reshape(weight, [-1, *trailing]))
    return result if bias is None else op.Add(result, op.Reshape(bias, [-1, *trailing]))


@lowering("aten::instance_norm")
def instance_norm(
    input: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_var: ir.Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> ir.Value:
    """`aten::instance_norm`: each channel of each sample by its own mean and variance, or by the running ones."""
    weight = _per_channel(input, 1.0) if weight is None else weight
    bias = _per_channel(input, 0.0) if bias is None else bias
    if not use_input_stats:
        return cast("ir.Value", op.BatchNormalization(input, weight, bias, running_mean, running_var, epsilon=eps))
    assert input.shape is not None
    sizes = list(input.shape)
    channels = sizes[1]
    if all(isinstance(size, int) for size in sizes[2:]):
        return op.InstanceNormalization(input, weight, bias, epsilon=eps)
    samples = shaped(_groups(input, channels, op.Shape(input), len(sizes)), [None] * len(sizes))
    return op.Reshape(op.InstanceNormalization(samples, weight, bias, epsilon=eps), op.Shape(input), allowzero=1)


def _with_statistics(
    input: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_var: ir.Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[ir.Value | None, ...]:
    """The normalised input, mean and 1 / deviation of the batch, and the running statistics after this batch."""
    uses_batch = training or running_mean is None or running_var is None
    out = batch_norm(input, weight, bias, running_mean, running_var, uses_batch, momentum, eps)
    if not uses_batch:
        nothing = op.CastLike(op.Constant(value=ir.tensor([], dtype=ir.DataType.FLOAT)), input)
        return out, nothing, nothing, running_mean, running_var
    assert input.shape is not None
    axes = [axis for axis in range(len(input.shape)) if axis != 1]
    mean = mean_over(input, axes, keepdims=True)
    centred = op.Sub(input, mean)
    variance = mean_over(shaped(op.Mul(centred, centred), input.shape), axes)
    mean = op.Squeeze(mean, axes)
    inverse = op.Reciprocal(op.Sqrt(op.Add(variance, op.CastLike(eps, input))))
    if running_mean is None or running_var is None:
        return out, mean, inverse, None, None
    elements = op.CastLike(op.Div(op.Size(input), op.Size(mean)), input)
    one = op.CastLike(1.0, input)
    unbiased = op.Mul(variance, op.Div(elements, op.Sub(elements, one)))
    kept, fresh = op.CastLike(1.0 - momentum, running_mean), op.CastLike(momentum, running_mean)
    new_mean = op.Add(op.Mul(running_mean, kept), op.Mul(op.CastLike(mean, running_mean), fresh))
    new_var = op.Add(op.Mul(running_var, kept), op.Mul(op.CastLike(unbiased, running_var), fresh))
    if not all(
        isinstance(size, int) and size for size in input.shape
    ):  # a batch without elements leaves them as they are
        is_empty = op.Equal(elements, op.CastLike(0.0, elements))
        new_mean, new_var = op.Where(is_empty, running_mean, new_mean), op.Where(is_empty, running_var, new_var)
    return out, mean, inverse, new_mean, new_var


@lowering("aten::native_batch_norm")
def native_batch_norm(
    input: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_var: ir.Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[ir.Value | None, ...]:
    """Normalised input and the statistics that were used."""
    return _with_statistics(input, weight, bias, running_mean, running_var, training, momentum, eps)[:3]


@lowering("aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_functional")
def native_batch_norm_functional(
    input: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value,
    running_var: ir.Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[ir.Value | None, ...]:
    """As `native_batch_norm`, with the running statistics after this batch as further results."""
    return _with_statistics(input, weight, bias, running_mean, running_var, training, momentum, eps)


@lowering("aten::_native_batch_norm_legit.no_stats")
def native_batch_norm_without_running(
    input: ir.Value, weight: ir.Value | None, bias: ir.Value | None, training: bool, momentum: float, eps: float
) -> tuple[ir.Value | None, ...]:
    """As `native_batch_norm`, where no running statistics are kept."""
    return _with_statistics(input, weight, bias, None, None, True, momentum, eps)[:3]


@lowering("aten::_native_batch_norm_legit_no_training")
def native_batch_norm_inference(
    input: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value,
    running_var: ir.Value,
    momentum: float,
    eps: float,
) -> tuple[ir.Value | None, ...]:
    """As `native_batch_norm`, outside training."""
    return _with_statistics(input, weight, bias, running_mean, running_var, False, momentum, eps)[:3]


@lowering("batch_export::batch_norm_training")
def batch_norm_training(
    input: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value | None,
    running_var: ir.Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[ir.Value | None, ...]:
    """Batch normalisation by the batch's own statistics, and the running ones after it."""
    out, _, _, mean, variance = _with_statistics(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )
    return out, mean, variance


@lowering("batch_export::instance_norm_training")
def instance_norm_training(
    input: ir.Value,
    weight: ir.Value | None,
    bias: ir.Value | None,
    running_mean: ir.Value,
    running_var: ir.Value,
    use_input_stats: bool,
    momentum: float,
    eps: float,
) -> tuple[RecordedValue, ...]:
    """Instance normalisation, and the running statistics moved by the mean of the instances' own.

    The variance that goes into the running one is unbiased, as torch's is.
    """
    assert input.shape is not None
    axes = list(range(2, len(input.shape)))
    trailing = [1] * len(axes)
    mean = mean_over(input, axes, keepdims=True)
    centred = op.Sub(input, mean)
    variance = mean_over(shaped(op.Mul(centred, centred), input.shape), axes, keepdims=True)
    out = op.Div(centred, op.Sqrt(op.Add(variance, op.CastLike(eps, input))))
    if weight is not None:
        out = op.Mul(out, op.Reshape(weight, [-1, *trailing]))
    if bias is not None:
        out = op.Add(out, op.Reshape(bias, [-1, *trailing]))
    count = op.CastLike(op.Div(op.Size(input), op.Size(mean)), input)
    unbiased = op.Mul(variance, op.Div(count, op.Sub(count, op.CastLike(1.0, input))))
    moved = []
    for running, fresh in ((running_mean, mean), (running_var, unbiased)):
        over_instances = op.ReduceMean(fresh, [0, *axes], keepdims=0)
        kept = op.Mul(running, op.CastLike(1.0 - momentum, running))
        moved.append(op.Add(kept, op.Mul(over_instances, op.CastLike(momentum, over_instances))))
    return out, *moved


@lowering("aten::layer_norm")
def layer_norm(
    input: ir.Value,
    normalized_shape: Sequence[object],
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> RecordedValue:
    """Normalisation over the last axes; onnxruntime has none over no elements, and such axes may be free."""
    count = len(normalized_shape)
    sizes = [fixed_size(input, axis) for axis in range(rank(input) - count, rank(input))]
    if 0 in sizes:
        return op.Identity(input)
    if None in sizes:
        return _layer_norm_of_free_axes(input, count, weight, bias, eps)
    from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

    write = cast("Callable[..., RecordedValue]", core.aten_layer_norm)
    return write(input, normalized_shape, weight, bias, eps)


def _layer_norm_of_free_axes(
    input: ir.Value, count: int, weight: ir.Value | None, bias: ir.Value | None, eps: float
) -> RecordedValue:
    wide = input.dtype in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    data = shaped(op.Cast(input, to=ir.DataType.FLOAT), input.shape) if wide else input
    last = list(range(rank(input) - count, rank(input)))
    centred = op.Sub(data, op.ReduceMean(data, last, keepdims=1))
    variance = op.ReduceMean(op.Mul(centred, centred), last, keepdims=1)
    normal = op.Div(centred, op.Sqrt(op.Add(variance, like(eps, data))))
    for write, value in ((op.Mul, weight), (op.Add, bias)):
        if value is not None:
            normal = write(normal, op.CastLike(value, data) if wide else value)
    return op.CastLike(normal, input) if wide else normal
