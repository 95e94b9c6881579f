"""Scaled dot product attention over any number of leading axes, with every kind of mask."""

from __future__ import annotations

import math

import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.inner_axes import matrix_product
from batch_export.exporter.ops.marking import lowering
from batch_export.exporter.ops.random import dropped


def _repeat_heads(tensor: ir.Value, query: ir.Value) -> ir.Value:
    """Repeats the heads (third axis from the end) of keys or values until there are as many as the query has."""
    assert tensor.shape is not None
    assert query.shape is not None
    heads, wanted = tensor.shape[-3], query.shape[-3]
    if not isinstance(heads, int) or not isinstance(wanted, int):
        raise TranslationError(
            "grouped attention needs a fixed number of heads", operator="aten::scaled_dot_product_attention"
        )
    if heads == wanted:
        return tensor
    place = len(tensor.shape) - 3
    times = [1] * (place + 1) + [wanted // heads, 1, 1]
    inner = tensor.shape[place + 1 :]
    repeated = op.Expand(op.Unsqueeze(tensor, [place + 1]), times)
    axes.shaped(repeated, [*tensor.shape[: place + 1], wanted // heads, *inner])
    outer = [op.Shape(tensor, start=0, end=place)] if place else []
    shape = [*outer, op.Constant(value=ir.tensor([wanted])), op.Shape(tensor, start=place + 1)]
    return axes.shaped(axes.reshaped(repeated, shape), [*tensor.shape[:place], wanted, *inner])


def _swap_last(tensor: ir.Value, rank: int) -> RecordedValue:
    return op.Transpose(tensor, perm=[*range(rank - 2), rank - 1, rank - 2])


def _scaled(query: ir.Value, key: ir.Value, root: float) -> tuple[RecordedValue, ir.Value]:
    """Queries and keys with a factor of root ** 2 between them.

    torch gives each a factor of the root, so that half precision neither overflows nor underflows; wider dtypes have
    room for both factors on the queries, which costs one operator less, and leaves the keys to one Transpose.
    """
    if query.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return op.Mul(query, op.CastLike(root * root, query)), key
    factor = op.CastLike(root, query)
    return op.Mul(query, factor), op.Mul(key, factor)


def _bool_mask(mask: ir.Value, query: ir.Value) -> tuple[RecordedValue, RecordedValue]:
    """What a mask of truth values adds to scores, and the factor of 1 or 0 that a row of weights gets for it.

    A row that lets nothing through adds nothing, so that its weights are finite before the factor of 0.
    """
    let_through = op.Cast(mask, to=ir.DataType.FLOAT)
    kept = let_through if mask.shape == () else op.ReduceMax(let_through, [-1], keepdims=1)
    nothing, everything = op.CastLike(0.0, query), op.CastLike(float("-inf"), query)
    return op.Where(op.Equal(let_through, kept), nothing, everything), _like(kept, query)


def _float_mask(mask: ir.Value, query: ir.Value) -> tuple[RecordedValue, RecordedValue]:
    """The same of a mask of numbers, in which -inf excludes and NaN does not."""
    excluded = op.Cast(op.Equal(mask, op.CastLike(float("-inf"), mask)), to=ir.DataType.FLOAT)
    row = excluded if mask.shape == () else op.ReduceMin(excluded, [-1], keepdims=1)
    added = op.Where(op.Cast(row, to=ir.DataType.BOOL), op.CastLike(0.0, mask), mask)
    added.shape = mask.shape
    return added, _like(op.Sub(op.Constant(value_float=1.0), row), query)


def _like(factor: RecordedValue, query: ir.Value) -> RecordedValue:
    return factor if query.dtype == ir.DataType.FLOAT else op.CastLike(factor, query)


def _alike(*tensors: ir.Value) -> bool:
    """Whether all have the same leading axes: all but the last two."""
    leading = [list(tensor.shape[:-2]) for tensor in tensors if tensor.shape is not None]
    return len(leading) == len(tensors) and all(one == leading[0] for one in leading)


def _repeats(mask: ir.Value, query: ir.Value) -> bool:
    """Whether a mask is at most repeated over the leading axes of queries, and does not repeat these."""
    if mask.shape is None or query.shape is None or len(mask.shape) > len(query.shape):
        return False
    leading = list(mask.shape[:-2])
    return all(size in (1, whole) for size, whole in zip(reversed(leading), reversed(query.shape[:-2]), strict=False))


@lowering("aten::scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_mask: ir.Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> RecordedValue:
    """softmax(Q @ K^T * scale + mask) @ V over `[..., length, size]`.

    A row that a mask excludes entirely has weights of 0, as torch's: it gives zeros, but for values that are NaN or
    infinite. NaN in queries, keys or the mask stays NaN. A dropout above zero drops weights at random in every run, as
    it does in torch even outside training.
    """
    assert query.shape is not None
    assert key.shape is not None
    size, key_rank = query.shape[-1], len(key.shape)
    if enable_gqa:
        key, value = _repeat_heads(key, query), _repeat_heads(value, query)
    scaled_key: ir.Value
    if scale is not None or isinstance(size, int):
        factor = math.sqrt(scale) if scale is not None and scale >= 0 else None
        if scale is None:
            assert isinstance(size, int)
            factor = math.sqrt(1.0 / math.sqrt(size))
        if factor is None:
            assert scale is not None
            scaled_query, scaled_key = op.Mul(query, op.CastLike(scale, query)), key
        else:
            scaled_query, scaled_key = _scaled(query, key, factor)
    else:
        length = op.CastLike(op.Gather(op.Shape(query), -1, axis=0), query)
        root = op.Sqrt(op.Div(op.CastLike(1.0, query), op.Sqrt(length)))
        scaled_query, scaled_key = op.Mul(query, root), op.Mul(key, root)
    scores = op.MatMul(scaled_query, _swap_last(scaled_key, key_rank))
    kept = None
    if is_causal:
        rows = op.Gather(op.Shape(query), -2, axis=0)
        columns = op.Gather(op.Shape(key), -2, axis=0)
        row = op.Unsqueeze(op.Range(0, rows, 1), [1])
        column = op.Unsqueeze(op.Range(0, columns, 1), [0])
        # CastLike of -inf keeps the dtype of the scores, half precision included.
        scores = op.Where(op.Greater(column, row), op.CastLike(float("-inf"), query), scores)
    elif attn_mask is not None:
        # Added, as torch does: the terms are computed once for all that share a mask.
        of_mask = _bool_mask if attn_mask.dtype == ir.DataType.BOOL else _float_mask
        added, kept = of_mask(attn_mask, query)
        scores = op.Add(scores, added)
    weights = op.Softmax(scores, axis=-1)
    alike = _alike(query, key, value) and (attn_mask is None or _repeats(attn_mask, query))
    if alike and weights.shape is None and key.shape is not None:
        weights.shape = ir.Shape([*query.shape[:-1], key.shape[-2]])
    if kept is not None:
        multiplied = op.Mul(weights, kept)
        multiplied.shape = weights.shape
        weights = multiplied
    if dropout_p:
        weights = dropped(weights, dropout_p)
    result = matrix_product(weights, value)
    if alike and value.shape is not None:
        result.shape = ir.Shape([*query.shape[:-1], value.shape[-1]])
    return result


@lowering("aten::_scaled_dot_product_flash_attention_for_cpu")
def scaled_dot_product_flash_attention_for_cpu(
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: ir.Value | None = None,
    scale: float | None = None,
) -> tuple[RecordedValue, None]:
    """What attention inside another operator's decomposition arrives as; fewer heads of keys than queries are shared.

    The second output, the logarithm of the sum of exponentials, serves gradients only and is not computed.
    """
    assert query.shape is not None
    assert key.shape is not None
    grouped = len(query.shape) == 4 and query.shape[-3] != key.shape[-3]
    output = scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, grouped)
    return output, None
