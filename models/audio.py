"""Audio encoders of transformers, built from configs: sizes arrive, seeded modules leave. No downloads."""

# torch types a module's call as Any, and transformers' configs take arguments that their signatures lack.
# mypy: disable-error-code="no-any-return, call-arg"

from __future__ import annotations

import transformers
from torch import Tensor, nn
from transformers.models.whisper.modeling_whisper import WhisperEncoder


class SpectrogramEncoder(nn.Module):
    """Whisper's encoder: log-mel frames in, hidden states out."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_features: Tensor) -> Tensor:
        """Maps `float32[batch, mels, frames]`, their number fixed, to `float32[batch, frames / 2, hidden]`."""
        return self.encoder(input_features).last_hidden_state


class WaveformEncoder(nn.Module):
    """Wav2Vec2 with a recogniser's head: samples in, logits for each frame out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_values: Tensor) -> Tensor:
        """Maps `float32[batch, samples]` to `float32[batch, frames, vocab]`."""
        return self.model(input_values).logits


def whisper_encoder(
    mels: int = 16, positions: int = 30, hidden_size: int = 32, layers: int = 2, heads: int = 4
) -> nn.Module:
    """Builds Whisper's encoder; it takes exactly `2 * positions` frames."""
    config = transformers.WhisperConfig(
        num_mel_bins=mels,
        max_source_positions=positions,
        d_model=hidden_size,
        encoder_layers=layers,
        encoder_attention_heads=heads,
        encoder_ffn_dim=2 * hidden_size,
        init_std=hidden_size**-0.5,
    )
    return SpectrogramEncoder(WhisperEncoder(config))


def wav2vec2(vocab_size: int = 32, hidden_size: int = 32, layers: int = 2, heads: int = 4) -> nn.Module:
    """Builds Wav2Vec2 with three feature convolutions; it takes any number of samples from about 100 on."""
    config = transformers.Wav2Vec2Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        initializer_range=hidden_size**-0.5,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        conv_dim=(16, 16, 16),
        conv_stride=(5, 4, 2),
        conv_kernel=(10, 8, 3),
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        num_feat_extract_layers=3,
    )
    return WaveformEncoder(transformers.Wav2Vec2ForCTC(config))
