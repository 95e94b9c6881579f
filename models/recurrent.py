"""Recurrent networks whose state goes in and comes out: plain numbers arrive, modules with seeded weights leave."""

# torch types a module's call as Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
from torch import Tensor, nn


class StatefulLstm(nn.Module):
    """A stacked LSTM over a sequence, and a projection of its outputs."""

    def __init__(self, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(width, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, width)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Maps `float32[batch, seq, width]` and two states `float32[layers, batch, hidden]` to the same shapes."""
        output, (h, c) = self.lstm(x, (h, c))
        return self.head(output), h, c


class StatefulGru(nn.Module):
    """A bidirectional GRU over embedded tokens."""

    def __init__(self, vocab_size: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden)
        self.gru = nn.GRU(hidden, hidden, bidirectional=True)
        self.head = nn.Linear(2 * hidden, vocab_size)

    def forward(self, tokens: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Maps `int64[seq, batch]`, a state `float32[2, batch, hidden]` to `float32[seq, batch, vocab]`, a state."""
        output, h = self.gru(self.embedding(tokens), h)
        return self.head(output), h


class CellByCell(nn.Module):
    """An RNN cell applied a fixed number of times by a Python loop, the state gated by its own output."""

    def __init__(self, width: int, hidden: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.cell = nn.GRUCell(width, hidden)
        self.gate = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Maps `float32[batch, steps, width]` and `float32[batch, hidden]` to all states and the last one."""
        states = []
        for step in range(self.steps):
            h = self.cell(x[:, step], h)
            h = h * torch.sigmoid(self.gate(h))
            states.append(h)
        return torch.stack(states, dim=1), h


def lstm(width: int = 16, hidden: int = 32, layers: int = 2) -> nn.Module:
    """Builds `StatefulLstm`."""
    return StatefulLstm(width, hidden, layers)


def gru(vocab_size: int = 100, hidden: int = 16) -> nn.Module:
    """Builds `StatefulGru`."""
    return StatefulGru(vocab_size, hidden)


def cell_by_cell(width: int = 8, hidden: int = 16, steps: int = 5) -> nn.Module:
    """Builds `CellByCell`."""
    return CellByCell(width, hidden, steps)
