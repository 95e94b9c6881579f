"""torch's own transformer layers: plain numbers arrive, modules with seeded weights leave. Nothing is downloaded."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn


class PaddedEncoder(nn.Module):
    """`nn.TransformerEncoder` over token embeddings; tokens past a sequence's length are masked."""

    def __init__(self, vocab_size: int, width: int, heads: int, layers: int, positions: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(positions, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Maps `int64[batch, seq]` and `int64[batch]` (each at least 1) to `float32[batch, seq, width]`."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        padding = places[None, :] >= lengths[:, None]
        return self.encoder(self.tokens(tokens) + self.positions(places), src_key_padding_mask=padding)


class CausalDecoder(nn.Module):
    """`nn.TransformerDecoder` with a causal mask, attending to an encoded source."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        layer = nn.TransformerDecoderLayer(width, heads, 2 * width, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, layers)

    def forward(self, target: Tensor, memory: Tensor) -> Tensor:
        """Maps `float32[batch, target, width]` and `float32[batch, source, width]` to the first one's shape."""
        size = target.shape[1]
        later = torch.full((size, size), float("-inf"), device=target.device).triu(diagonal=1)
        # Saying that the mask is causal spares torch from comparing it with one, which capture cannot follow.
        return self.decoder(target, memory, tgt_mask=later, tgt_is_causal=True)


def transformer_encoder(
    vocab_size: int = 200, width: int = 32, heads: int = 4, layers: int = 2, positions: int = 64
) -> nn.Module:
    """Builds `PaddedEncoder`."""
    return PaddedEncoder(vocab_size, width, heads, layers, positions)


def transformer_decoder(width: int = 32, heads: int = 4, layers: int = 2) -> nn.Module:
    """Builds `CausalDecoder`."""
    return CausalDecoder(width, heads, layers)
