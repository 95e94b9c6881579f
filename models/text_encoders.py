"""Text encoders of transformers, built from configs: sizes arrive, modules with seeded weights leave. No downloads."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor, nn


class TextEncoder(nn.Module):
    """An encoder that takes token ids and a mask and returns a plain tensor instead of an output object."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Maps two `int64[batch, seq]` to `float32[batch, seq, hidden]`."""
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class PooledTextEncoder(nn.Module):
    """As `TextEncoder`, with the pooled first token as the second output."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Maps two `int64[batch, seq]` to `float32[batch, seq, hidden]` and `float32[batch, hidden]`."""
        output = self.encoder(input_ids=input_ids, attention_mask=attention_mask)
        return output.last_hidden_state, output.pooler_output


class PaddedTextEncoder(nn.Module):
    """An encoder whose mask is computed from the sequences' lengths, so that some tokens really are padding."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Maps `int64[batch, seq]` and `int64[batch]` (each at least 1) to `float32[batch, seq, hidden]`."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        mask = (places[None, :] < lengths[:, None]).to(torch.int64)
        return self.encoder(input_ids=input_ids, attention_mask=mask).last_hidden_state


def bert(
    hidden_size: int = 32,
    layers: int = 2,
    heads: int = 4,
    intermediate_size: int = 64,
    vocab_size: int = 1000,
    max_positions: int = 64,
) -> nn.Module:
    """Builds BERT; its outputs are the hidden states and the pooled first token."""
    sizes = _sizes(hidden_size, layers, heads, intermediate_size, vocab_size, max_positions)
    return PooledTextEncoder(transformers.BertModel(transformers.BertConfig(**sizes)))


def bert_padded(
    hidden_size: int = 32,
    layers: int = 2,
    heads: int = 4,
    intermediate_size: int = 64,
    vocab_size: int = 1000,
    max_positions: int = 64,
) -> nn.Module:
    """Builds BERT with padding computed from lengths."""
    sizes = _sizes(hidden_size, layers, heads, intermediate_size, vocab_size, max_positions)
    return PaddedTextEncoder(transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False))


def roberta(vocab_size: int = 1000, hidden_size: int = 32, layers: int = 2, heads: int = 4) -> nn.Module:
    """Builds RoBERTa, whose position ids are computed from the token ids that are no padding (id 1)."""
    sizes = _sizes(hidden_size, layers, heads, 2 * hidden_size, vocab_size, 66)
    return TextEncoder(transformers.RobertaModel(transformers.RobertaConfig(**sizes), add_pooling_layer=False))


def electra(vocab_size: int = 1000, hidden_size: int = 32, layers: int = 2, heads: int = 4) -> nn.Module:
    """Builds ELECTRA, with embeddings narrower than its hidden states."""
    sizes = _sizes(hidden_size, layers, heads, 2 * hidden_size, vocab_size, 64)
    return TextEncoder(transformers.ElectraModel(transformers.ElectraConfig(embedding_size=hidden_size // 2, **sizes)))


def albert(vocab_size: int = 1000, hidden_size: int = 32, layers: int = 2, heads: int = 4) -> nn.Module:
    """Builds ALBERT, whose layers share their weights."""
    sizes = _sizes(hidden_size, layers, heads, 2 * hidden_size, vocab_size, 64)
    return PooledTextEncoder(
        transformers.AlbertModel(transformers.AlbertConfig(embedding_size=hidden_size // 2, **sizes))
    )


def mpnet(vocab_size: int = 1000, hidden_size: int = 32, layers: int = 2, heads: int = 4) -> nn.Module:
    """Builds MPNet, with its bucketed relative position bias."""
    sizes = _sizes(hidden_size, layers, heads, 2 * hidden_size, vocab_size, 66)
    return TextEncoder(transformers.MPNetModel(transformers.MPNetConfig(**sizes), add_pooling_layer=False))


def distilbert(vocab_size: int = 1000, hidden_size: int = 32, layers: int = 2, heads: int = 4) -> nn.Module:
    """Builds DistilBERT, which has no token types and no pooler."""
    config = transformers.DistilBertConfig(
        vocab_size=vocab_size,
        dim=hidden_size,
        n_layers=layers,
        n_heads=heads,
        hidden_dim=2 * hidden_size,
        max_position_embeddings=64,
        initializer_range=hidden_size**-0.5,
    )
    return TextEncoder(transformers.DistilBertModel(config))


def _sizes(hidden: int, layers: int, heads: int, intermediate: int, vocabulary: int, positions: int) -> dict[str, Any]:
    """Returns sizes, and the spread of the weights, under the names that most of transformers' configs share."""
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
        "vocab_size": vocabulary,
        "max_position_embeddings": positions,
        # The usual 0.02 would leave narrow models all but constant, and mistakes invisible.
        "initializer_range": hidden**-0.5,
    }
