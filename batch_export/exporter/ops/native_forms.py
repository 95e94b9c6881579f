"""Torch operators that newer opsets have whole: group and root mean square normalisation, attention.

Arrives: the torch operator's arguments. Leaves: ONNX's operator of the same name, where one is asked for or is known to
run right; the other translations of these operators are in `normalisation.py` and `attention.py`, or torch's own
decompositions. What is known of the kernels was measured with onnxruntime 1.31 on the CPU, opsets 21 to 25, float16,
float32 and float64, with and without free axes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op, op21, op23
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.double_forms import is_single
from batch_export.exporter.ops.marking import Obstacle, lowering


def _may_be_none(size: int | ir.SymbolicDim) -> bool:
    """Whether an axis may have no elements: one of free size may."""
    return not isinstance(size, int) or size == 0


def _group_norm_obstacle(*_: object, **__: object) -> Obstacle:
    """The operator is defined by the mean of the squares less the square of the mean, where torch adds up squares of
    differences; onnxruntime runs that definition node by node, in twice the time of our own translation.
    """
    return Obstacle("GroupNormalization loses, by its definition, what varies little beside the mean")


@lowering("aten::group_norm", opset=21, native="GroupNormalization", obstacle=_group_norm_obstacle)
def native_group_norm(
    input: ir.Value,
    num_groups: int,
    weight: ir.Value | None = None,
    bias: ir.Value | None = None,
    eps: float = 1e-05,
    cudnn_enabled: bool = True,
) -> RecordedValue:
    """`aten::group_norm` as the operator whose scale and bias are per channel, which they are from opset 21 on."""

    def each_channel(fill: float) -> RecordedValue:
        value = op.Constant(value=ir.tensor([fill], dtype=input.dtype))
        return op.Expand(value, op.Shape(input, start=1, end=2))

    weight = each_channel(1.0) if weight is None else weight
    bias = each_channel(0.0) if bias is None else bias
    return op21.GroupNormalization(input, weight, bias, num_groups=num_groups, epsilon=eps)


_EPSILON = {ir.DataType.FLOAT: 2.0**-23, ir.DataType.DOUBLE: 2.0**-52, ir.DataType.FLOAT16: 2.0**-23}
"""What torch adds when no epsilon is given: that of the dtype that it computes in."""


def _rms_norm_obstacle(input: ir.Value, normalized_shape: Sequence[Size], *_: object, **__: object) -> Obstacle | None:
    if input.dtype not in _EPSILON:
        return Obstacle(f"onnxruntime has no RMSNormalization of {input.dtype}")
    normalised = range(-len(normalized_shape), 0)
    if any(not axes.fixed_size(input, axis) for axis in normalised):
        return Obstacle("onnxruntime's RMSNormalization fails where there is nothing to normalise")
    return None


@lowering("aten::rms_norm", opset=23, native="RMSNormalization", obstacle=_rms_norm_obstacle)
def native_rms_norm(
    input: ir.Value, normalized_shape: Sequence[Size], weight: ir.Value | None = None, eps: float | None = None
) -> RecordedValue:
    """`aten::rms_norm` as the operator of opset 23; without a weight the scale is one number."""
    epsilon = _EPSILON.get(input.dtype or ir.DataType.FLOAT, 2.0**-23) if eps is None else eps
    scale = op.Constant(value=ir.tensor([1.0], dtype=input.dtype)) if weight is None else weight
    return op23.RMSNormalization(
        input,
        scale,
        axis=-len(normalized_shape),
        epsilon=epsilon,
        stash_type=int(ir.DataType.DOUBLE if input.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT),
    )


def _attention_obstacle(
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_mask: ir.Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Obstacle | None:
    tensors = (query, key, value)
    if any(tensor.shape is None or len(tensor.shape) != 4 for tensor in tensors):
        return Obstacle("Attention takes queries, keys and values of four axes", formal=True)
    if dropout_p:
        return Obstacle("Attention drops no weights", formal=True)
    if scale is not None and (not isinstance(scale, (int, float)) or scale <= 0):
        return Obstacle("Attention takes the root of its scale, a positive number", formal=True)
    if not enable_gqa and len({tensor.shape[1] for tensor in tensors}) != 1:  # type: ignore[index]
        return Obstacle("Attention shares heads of keys among queries, and does not repeat batches", formal=True)
    if query.dtype == ir.DataType.DOUBLE and not _has_single_root(query, scale):
        return Obstacle("onnxruntime's Attention of float64 takes the root of its scale in float32")
    if any(_may_be_none(size) for tensor in tensors for size in tensor.shape or ()):
        return Obstacle("onnxruntime's Attention fails where the batch is empty or there are no keys")
    if attn_mask is None:
        return None
    assert query.shape is not None
    assert key.shape is not None
    if attn_mask.dtype != ir.DataType.BOOL:
        return Obstacle("onnxruntime's Attention gives zeros for a row whose mask is finite and very small everywhere")
    if query.dtype == ir.DataType.DOUBLE:
        return Obstacle("onnxruntime's Attention of float64 gives NaN for a row that its mask excludes")
    if list(attn_mask.shape or ())[-2:] != [query.shape[2], key.shape[2]]:
        return Obstacle("onnxruntime's Attention does not repeat the rows of a mask")
    return None


def _has_single_root(query: ir.Value, scale: float | None) -> bool:
    """Whether float32 holds what onnxruntime multiplies queries, and keys, by."""
    size = query.shape[-1] if query.shape is not None else None
    if scale is None and not isinstance(size, int):
        return False
    root = math.sqrt(scale) if scale is not None else (size or 1) ** -0.25  # type: ignore[operator]
    return is_single(root)


@lowering("aten::scaled_dot_product_attention", opset=23, native="Attention", obstacle=_attention_obstacle)
def native_attention(
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_mask: ir.Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> RecordedValue:
    """`aten::scaled_dot_product_attention` over `[batch, heads, length, size]` as the operator of opset 23."""
    attributes: dict[str, float] = {} if scale is None else {"scale": float(scale)}
    if is_causal:
        attributes["is_causal"] = 1
    given = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    return op23.Attention(*given, **attributes)
