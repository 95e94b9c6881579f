"""Attention and encoder layers that TorchScript keeps as one operator of the fast path, by those of the slow one.

Arrives: the arguments of those operators, all inputs batch first. Leaves: what eager gives without its fast path.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

_PADDING, _BOTH = 1, 2
"""What a mask excludes: keys of padding, or these and pairs of positions; any other excludes pairs alone."""


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`aten::_native_multi_head_attention`: `[batch, queries, embed_dim]`, and the weights where they are asked for."""
    padding = mask if mask_type == _PADDING else None
    pairs = None if mask is None or mask_type == _PADDING else mask
    if pairs is not None and mask_type == _BOTH and pairs.dim() == 4:
        sizes = [query.shape[0], num_head, query.shape[1], key.shape[1]]
        pairs = pairs.expand(sizes).reshape([-1, *sizes[2:]])
    found, weights = functional.multi_head_attention_forward(
        query.transpose(0, 1),
        key.transpose(0, 1),
        value.transpose(0, 1),
        embed_dim,
        num_head,
        qkv_weight,
        qkv_bias,
        None,
        None,
        False,
        0.0,
        proj_weight,
        proj_bias,
        training=False,
        key_padding_mask=padding,
        need_weights=need_weights,
        attn_mask=pairs,
        average_attn_weights=average_attn_weights,
    )
    return found.transpose(0, 1), weights


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """`aten::_transformer_encoder_layer_fwd`, in the shape of `src`: `[batch, length, embed_dim]`."""

    def attended(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return attention(x, x, x, embed_dim, num_heads, *weights, mask, False, True, mask_type)[0]

    def fed(x: Tensor) -> Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def first(x: Tensor) -> Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return functional.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attended(first(src))
        return x + fed(second(x))
    x = first(src + attended(src))
    return second(x + fed(x))
