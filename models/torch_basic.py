"""Feed-forward models from torch alone: plain numbers arrive, modules with seeded weights leave. No downloads."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class InplaceSdpa(nn.Module):
    """An in-place addition to an intermediate value, then scaled dot-product attention of a value with itself."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, heads, 1, width))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Maps two `float32[batch, heads, seq, width]` to one."""
        a = torch.sin(x)
        a.add_(y)
        b = a * self.weight
        return functional.scaled_dot_product_attention(b, b, b)


class NestedMlp(nn.Module):
    """A multilayer perceptron over a tensor, a tensor in a dict and a tensor in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.fc0 = nn.Linear(8, 8)
        self.fc1 = nn.Linear(8, 4)
        self.fc2 = nn.Linear(4, 2)
        self.fc3 = nn.Linear(2, 2)
        self.fc_combined = nn.Linear(8 + 8 + 8, 8)

    def forward(self, tensor_x: Tensor, input_dict: dict[str, Tensor], input_list: list[Tensor]) -> Tensor:
        """Maps three `float32[batch, 8]` to `float32[batch, 2]`."""
        combined = torch.cat([tensor_x, input_dict["tensor_x"], input_list[0]], dim=1)
        combined = torch.sigmoid(self.fc_combined(combined))
        combined = torch.sigmoid(self.fc0(combined))
        combined = torch.sigmoid(self.fc1(combined))
        combined = torch.sigmoid(self.fc2(combined))
        return self.fc3(combined)


class ConvNet(nn.Module):
    """Convolutions with batch norm and pooling, then a classifier over the pooled features."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, 2 * channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.classifier = nn.Linear(2 * channels, classes)
        _trained_batch_norm(self)

    def forward(self, image: Tensor) -> Tensor:
        """Maps `float32[batch, 3, height, width]` to `float32[batch, classes]`."""
        return self.classifier(self.features(image))


def _trained_batch_norm(module: nn.Module) -> None:
    """Gives batch norms statistics as after training; fresh ones (0 and 1) would make them near-identities."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            nn.init.normal_(layer.running_mean, std=0.2)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)


def inplace_sdpa(heads: int = 3, width: int = 10) -> nn.Module:
    """Builds `InplaceSdpa`."""
    return InplaceSdpa(heads, width)


def mlp_nested() -> nn.Module:
    """Builds `NestedMlp`."""
    return NestedMlp()


def cnn(channels: int = 8, classes: int = 10) -> nn.Module:
    """Builds `ConvNet`."""
    return ConvNet(channels, classes)
