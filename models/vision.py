"""Image classifiers of transformers, built from configs: sizes arrive, seeded modules leave. No downloads.

Weights of narrow models are spread by `width ** -0.5`: the usual 0.02 would leave them all but constant.
"""

# torch types a module's call as Any, and transformers' configs take arguments that their signatures lack.
# mypy: disable-error-code="no-any-return, call-arg"

from __future__ import annotations

import torch
import transformers
from torch import Tensor, nn


class ImageClassifier(nn.Module):
    """A classifier that returns plain logits instead of an output object."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Maps `float32[batch, 3, height, width]` to `float32[batch, classes]`."""
        return self.model(pixel_values=pixel_values).logits


def vit(image_size: int = 32, patch_size: int = 8, hidden_size: int = 32, layers: int = 2, heads: int = 4) -> nn.Module:
    """Builds ViT; its position embeddings fix the image size."""
    config = transformers.ViTConfig(
        image_size=image_size,
        patch_size=patch_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        initializer_range=hidden_size**-0.5,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_labels=10,
    )
    return ImageClassifier(transformers.ViTForImageClassification(config))


def swin(image_size: int = 32, embed_dim: int = 16, window_size: int = 4) -> nn.Module:
    """Builds Swin with two stages of two layers, the second of each with shifted windows; the image size is fixed."""
    config = transformers.SwinConfig(
        image_size=image_size,
        patch_size=2,
        embed_dim=embed_dim,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=window_size,
        initializer_range=embed_dim**-0.5,
        num_labels=10,
    )
    return ImageClassifier(transformers.SwinForImageClassification(config))


def convnext(channels: int = 16) -> nn.Module:
    """Builds ConvNeXt with two stages; it takes images of any size from 8 x 8 on."""
    config = transformers.ConvNextConfig(
        num_stages=2,
        hidden_sizes=[channels, 2 * channels],
        initializer_range=channels**-0.5,
        depths=[2, 2],
        num_labels=10,
        # Far above the 1e-6 that training starts from, so that the scaled branches show in the outputs.
        layer_scale_init_value=0.5,
    )
    return ImageClassifier(transformers.ConvNextForImageClassification(config))


def resnet50(classes: int = 1000, seed_of_calibration: int = 1) -> nn.Module:
    """Builds ResNet-50 at full size; batch norms get the statistics of one random batch, as a trained network would."""
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=classes))
    generator = torch.Generator().manual_seed(seed_of_calibration)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # One batch's statistics are taken as they are.
    with torch.no_grad():
        model.train()(pixel_values=torch.randn(2, 3, 96, 96, generator=generator))
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 0.1
    return ImageClassifier(model)
