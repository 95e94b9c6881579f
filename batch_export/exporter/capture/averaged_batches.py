"""During capture, batch normalisation that averages over all batches (`momentum=None`) counts them in the program.

Nothing arrives. Leaves: a context in which such a layer in training mode moves its running statistics by one over the
number of batches as a tensor. torch's own code asks the buffer for that number, which would stay the example's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm


@contextlib.contextmanager
def averaged_batches() -> Iterator[None]:
    """While open, these layers run by their form above; all others, and all in eval mode, by torch's own."""
    kind: Any = _BatchNorm
    own = kind.forward

    def forward(self: Any, input: torch.Tensor) -> torch.Tensor:
        averages = self.training and self.momentum is None and self.track_running_stats
        if not averages or self.running_mean is None or self.num_batches_tracked is None:
            return own(self, input)  # type: ignore[no-any-return]
        self._check_input_dim(input)
        self.num_batches_tracked.add_(1)
        mean, variance = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        normal = functional.batch_norm(input, mean, variance, self.weight, self.bias, True, 1.0, self.eps)
        share = (1.0 / self.num_batches_tracked.to(torch.float64)).to(mean.dtype)
        for running, fresh in ((self.running_mean, mean), (self.running_var, variance)):
            running.copy_(running * (1.0 - share) + fresh * share)
        return normal

    kind.forward = forward
    try:
        yield
    finally:
        kind.forward = own
