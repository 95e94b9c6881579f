"""Models with control flow that depends on data: plain numbers arrive, modules with seeded weights leave."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._higher_order_ops import scan  # torch 2.13 has no public name for it


class Branches(nn.Module):
    """Picks one of two expert networks by the sign of a learnt score of the whole batch (`torch.cond`)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, 1)
        self.calm = nn.Linear(width, hidden)
        self.lively = nn.Linear(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Maps `float32[batch, width]` to `float32[batch, hidden]`."""

        def calm(x: Tensor) -> Tensor:
            return torch.tanh(self.calm(x))

        def lively(x: Tensor) -> Tensor:
            return torch.relu(self.lively(x)) + 1.0

        return torch.cond(self.score(x).mean() > 0, lively, calm, (x,))


class StateSpace(nn.Module):
    """A gated linear recurrence over the time axis (`scan`); the last state comes out as well."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.drive = nn.Linear(width, hidden)
        self.keep = nn.Linear(width, hidden)
        self.head = nn.Linear(hidden, width)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Maps `float32[seq, batch, width]` and a state `float32[batch, hidden]` to the same two shapes."""
        keep = torch.sigmoid(self.keep(x))
        drive = self.drive(x)

        def step(state: Tensor, inputs: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            keep_now, drive_now = inputs
            state = keep_now * state + (1 - keep_now) * drive_now
            return state, torch.tanh(state)

        last, states = scan(step, state, (keep, drive))
        return self.head(states), last


def cond_experts(width: int = 8, hidden: int = 12) -> nn.Module:
    """Builds `Branches`."""
    return Branches(width, hidden)


def scan_state_space(width: int = 8, hidden: int = 16) -> nn.Module:
    """Builds `StateSpace`."""
    return StateSpace(width, hidden)
