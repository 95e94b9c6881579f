"""Models of text and images together, from transformers' configs: sizes arrive, seeded modules leave. No downloads."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import transformers
from torch import Tensor, nn


class TextImageScores(nn.Module):
    """CLIP: texts and images in; their similarities and embeddings out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, pixel_values: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores every text against every image.

        Args:
            input_ids: `int64[texts, seq]`.
            pixel_values: `float32[images, 3, height, width]`, of the size that the model was built for.
            attention_mask: `int64[texts, seq]`.

        Returns:
            Scores `float32[images, texts]`, text and image embeddings `float32[texts or images, projection]`.
        """
        output = self.model(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return output.logits_per_image, output.text_embeds, output.image_embeds


def clip(
    vocab_size: int = 500, image_size: int = 32, hidden_size: int = 32, layers: int = 2, heads: int = 4
) -> nn.Module:
    """Builds CLIP."""
    shared = {
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "projection_dim": hidden_size,
    }
    text = {
        **shared,
        "vocab_size": vocab_size,
        "max_position_embeddings": 32,
        "bos_token_id": vocab_size - 2,
        "eos_token_id": vocab_size - 1,
    }
    image = {**shared, "image_size": image_size, "patch_size": 8}
    config = transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=hidden_size)
    return TextImageScores(transformers.CLIPModel(config))
