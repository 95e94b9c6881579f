"""Causal language models of transformers, built from configs: sizes arrive, seeded modules leave. No downloads.

Weights are spread by `hidden_size ** -0.5`: the usual 0.02 would leave narrow models all but constant, and mistakes
invisible.
"""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import transformers
from torch import Tensor, nn


class CausalModel(nn.Module):
    """A causal language model without a cache: token ids and a mask in, logits out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Maps two `int64[batch, seq]` to `float32[batch, seq, vocab]`."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).logits


class CachedModel(nn.Module):
    """A causal language model with an explicit cache: past keys and values in, present ones out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past: list[dict[str, Tensor]]
    ) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """Reads the next tokens after a past.

        Args:
            input_ids: `int64[batch, seq]`.
            attention_mask: `int64[batch, past + seq]`.
            past: for each layer `key` and `value`, `float32[batch, kv_heads, past, head]`.

        Returns:
            Logits `float32[batch, seq, vocab]`, and keys and values `float32[batch, kv_heads, past + seq, head]`.
        """
        cache = transformers.DynamicCache([(layer["key"], layer["value"]) for layer in past])
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = [{"key": layer.keys, "value": layer.values} for layer in output.past_key_values.layers]
        return output.logits, present


def gpt2(vocab_size: int = 1000, hidden_size: int = 32, layers: int = 2, heads: int = 4) -> nn.Module:
    """Builds GPT-2."""
    config = transformers.GPT2Config(
        vocab_size=vocab_size,
        n_embd=hidden_size,
        n_layer=layers,
        n_head=heads,
        n_positions=64,
        initializer_range=hidden_size**-0.5,
        bos_token_id=0,
        eos_token_id=0,
    )
    return CausalModel(transformers.GPT2LMHeadModel(config))


def llama(
    vocab_size: int = 1000,
    hidden_size: int = 32,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    cache: bool = False,
) -> nn.Module:
    """Builds Llama with grouped-query attention; with `cache`, past keys and values are inputs and outputs."""
    config = transformers.LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=128,
        initializer_range=hidden_size**-0.5,
    )
    model = transformers.LlamaForCausalLM(config)
    return CachedModel(model) if cache else CausalModel(model)


def qwen2(
    vocab_size: int = 1000, hidden_size: int = 32, layers: int = 2, heads: int = 4, kv_heads: int = 2
) -> nn.Module:
    """Builds Qwen2, whose attention has biases; the output weights are the embedding's."""
    config = transformers.Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=128,
        initializer_range=hidden_size**-0.5,
        tie_word_embeddings=True,
    )
    return CausalModel(transformers.Qwen2ForCausalLM(config))
