"""Encoder-decoder models of transformers, built from configs: sizes arrive, seeded modules leave. No downloads."""

# torch types a module's call as Any, and transformers' configs take arguments that their signatures lack.
# mypy: disable-error-code="no-any-return, call-arg"

from __future__ import annotations

import transformers
from torch import Tensor, nn


class Seq2Seq(nn.Module):
    """An encoder-decoder without a cache: source and target tokens in, logits out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, decoder_input_ids: Tensor) -> Tensor:
        """Maps two `int64[batch, source]` and `int64[batch, target]` to `float32[batch, target, vocab]`."""
        return self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            decoder_input_ids=decoder_input_ids,
            use_cache=False,
        ).logits


def t5(vocab_size: int = 1000, hidden_size: int = 32, layers: int = 2, heads: int = 4) -> nn.Module:
    """Builds T5, with its bucketed relative position bias."""
    config = transformers.T5Config(
        vocab_size=vocab_size,
        d_model=hidden_size,
        d_kv=hidden_size // heads,
        d_ff=2 * hidden_size,
        num_layers=layers,
        num_heads=heads,
        decoder_start_token_id=0,
    )
    return Seq2Seq(transformers.T5ForConditionalGeneration(config))
