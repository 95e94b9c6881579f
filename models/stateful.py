"""Models that change their own buffers when they run: plain numbers arrive, modules with seeded weights leave."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn


class StreamingNorm(nn.Module):
    """Normalises by exponential moving averages that it updates at every call, in eval mode too; it counts calls."""

    calls: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, width: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.scale = nn.Linear(width, width)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", 0.1 * torch.randn(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Maps `float32[batch, width]` to the same shape; changes `calls`, `mean` and `variance`."""
        self.calls.add_(1)
        self.mean.mul_(1 - self.momentum).add_(self.momentum * x.mean(dim=0))
        spread = (x - self.mean).square().mean(dim=0)
        self.variance.copy_(torch.lerp(self.variance, spread, self.momentum))
        return self.scale((x - self.mean) * torch.rsqrt(self.variance + 1e-5))


def streaming_norm(width: int = 8, momentum: float = 0.1) -> nn.Module:
    """Builds `StreamingNorm`."""
    return StreamingNorm(width, momentum)
