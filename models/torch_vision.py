"""Image models from torch alone: plain numbers arrive, modules with seeded weights leave. Nothing is downloaded."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class DoubleConv(nn.Sequential):
    """Two convolutions, each with group norm and SiLU."""

    def __init__(self, given: int, wanted: int) -> None:
        super().__init__(
            nn.Conv2d(given, wanted, 3, padding=1),
            nn.GroupNorm(4, wanted),
            nn.SiLU(),
            nn.Conv2d(wanted, wanted, 3, padding=1),
            nn.GroupNorm(4, wanted),
            nn.SiLU(),
        )


class UNet(nn.Module):
    """Segmentation: two steps down, two up; each step up is resized to the size of its skip connection."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.enter = DoubleConv(3, channels)
        self.down = DoubleConv(channels, 2 * channels)
        self.bottom = DoubleConv(2 * channels, 4 * channels)
        self.up = DoubleConv(6 * channels, 2 * channels)
        self.leave = DoubleConv(3 * channels, channels)
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Maps `float32[batch, 3, height, width]` to `float32[batch, classes, height, width]`."""
        fine = self.enter(image)
        middle = self.down(functional.max_pool2d(fine, 2))
        coarse = self.bottom(functional.max_pool2d(middle, 2))
        risen = functional.interpolate(coarse, size=middle.shape[-2:], mode="bilinear", align_corners=False)
        middle = self.up(torch.cat([risen, middle], dim=1))
        risen = functional.interpolate(middle, size=fine.shape[-2:], mode="bilinear", align_corners=False)
        return self.head(self.leave(torch.cat([risen, fine], dim=1)))


class SqueezeExcite(nn.Module):
    """Scales channels by a gate computed from their means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, channels // 4, 1)
        self.excite = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape `float32[batch, channels, height, width]`."""
        gate = functional.relu(self.squeeze(functional.adaptive_avg_pool2d(x, 1)))
        return x * functional.hardsigmoid(self.excite(gate))


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, squeeze-and-excite, projection; the input is added when the shapes agree."""

    def __init__(self, given: int, wanted: int, stride: int) -> None:
        super().__init__()
        wide = 4 * given
        self.shortcut = stride == 1 and given == wanted
        self.body = nn.Sequential(
            nn.Conv2d(given, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.Hardswish(),
            nn.Conv2d(wide, wide, 3, stride=stride, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            SqueezeExcite(wide),
            nn.Conv2d(wide, wanted, 1, bias=False),
            nn.BatchNorm2d(wanted),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Maps `float32[batch, given, height, width]` to `float32[batch, wanted, height / stride, width / stride]`."""
        return x + self.body(x) if self.shortcut else self.body(x)


class MobileNet(nn.Module):
    """Depthwise-separable classifier in the manner of MobileNetV3 (arXiv:1905.02244)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(channels), nn.Hardswish()
        )
        self.blocks = nn.Sequential(
            InvertedResidual(channels, channels, 1),
            InvertedResidual(channels, 2 * channels, 2),
            InvertedResidual(2 * channels, 2 * channels, 1),
        )
        self.head = nn.Linear(2 * channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        """Maps `float32[batch, 3, height, width]` to `float32[batch, classes]`."""
        return self.head(self.blocks(self.stem(image)).mean(dim=(2, 3)))


class TimeResidual(nn.Module):
    """A residual block whose features are shifted by an embedding of the time step."""

    def __init__(self, given: int, wanted: int, time_width: int) -> None:
        super().__init__()
        self.norm_in = nn.GroupNorm(4, given)
        self.conv_in = nn.Conv2d(given, wanted, 3, padding=1)
        self.time = nn.Linear(time_width, wanted)
        self.norm_out = nn.GroupNorm(4, wanted)
        self.conv_out = nn.Conv2d(wanted, wanted, 3, padding=1)
        self.shortcut = nn.Conv2d(given, wanted, 1) if given != wanted else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Maps `float32[batch, given, height, width]` and `float32[batch, time_width]` to the wanted channels."""
        hidden = self.conv_in(functional.silu(self.norm_in(x)))
        hidden = hidden + self.time(functional.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv_out(functional.silu(self.norm_out(hidden)))


class DiffusionUNet(nn.Module):
    """A denoiser: sinusoidal time embedding, one step down, attention over the pixels, one step up."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, 2 * channels), nn.SiLU(), nn.Linear(2 * channels, 2 * channels))
        self.enter = nn.Conv2d(4, channels, 3, padding=1)
        self.down = TimeResidual(channels, 2 * channels, 2 * channels)
        self.shrink = nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 2 * channels)
        self.attention = nn.MultiheadAttention(2 * channels, 2, batch_first=True)
        self.up = TimeResidual(4 * channels, channels, 2 * channels)
        self.leave = nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, sample: Tensor, timestep: Tensor) -> Tensor:
        """Maps noisy latents `float32[batch, 4, height, width]` at `int64[batch]` to the predicted noise."""
        time = self.time(_sinusoids(timestep, self.channels))
        fine = self.down(self.enter(sample), time)
        coarse = self.shrink(fine)
        pixels = self.norm(coarse).flatten(2).transpose(1, 2)
        mixed, _ = self.attention(pixels, pixels, pixels, need_weights=False)
        coarse = coarse + mixed.transpose(1, 2).reshape(coarse.shape)
        risen = functional.interpolate(coarse, size=fine.shape[-2:], mode="nearest")
        return self.leave(self.up(torch.cat([risen, fine], dim=1), time))


def _sinusoids(timestep: Tensor, width: int) -> Tensor:
    """Embeds `int64[batch]` as `float32[batch, width]` (arXiv:2006.11239, section B)."""
    half = width // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float32) * (-math.log(10000.0) / half))
    angles = timestep[:, None].float() * rates[None, :]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def unet(channels: int = 8, classes: int = 2) -> nn.Module:
    """Builds `UNet`."""
    return UNet(channels, classes)


def mobilenet(channels: int = 8, classes: int = 10) -> nn.Module:
    """Builds `MobileNet`; batch norms get statistics as after training instead of 0 and 1."""
    module = MobileNet(channels, classes)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            nn.init.normal_(layer.running_mean, std=0.1)
            nn.init.uniform_(layer.running_var, 0.2, 1.0)
    return module


def diffusion_unet(channels: int = 16) -> nn.Module:
    """Builds `DiffusionUNet`."""
    return DiffusionUNet(channels)
