"""Attributes that forward changes: those that only remember tables for sizes are not warned of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from batch_export.exporter import export
from batch_export.exporter.capture.settled_attributes import unsettled


class Grid(nn.Module):
    """Remembers the places of a grid for the last size, as detectors do."""

    def __init__(self) -> None:
        super().__init__()
        self.size: Any = None
        self.grid = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.size != x.shape[1:]:
            self.size, self.grid = x.shape[1:], torch.arange(x.shape[1]) * 0.5
        return x + self.grid


class Growing(nn.Module):
    """Remembers a table that is as long as the longest input so far, and another one at each length."""

    def __init__(self) -> None:
        super().__init__()
        self.longest, self.table = 0, torch.zeros(0)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > self.longest:
            self.longest, self.table = x.shape[1], torch.arange(x.shape[1]) / x.shape[1]
        return x + self.table[: x.shape[1]]


class Counter(nn.Module):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * 2


class Last(nn.Module):
    """Keeps what it was given, and reads it never."""

    last: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = x.sum()
        return x * 2


class Kept(nn.Module):
    """Keeps what the first call was given for all others."""

    kept: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = x * 2
        return x + self.kept


class Once(nn.Module):
    done = False

    def forward(self, x: Tensor) -> Tensor:
        y = x * 3 if self.done else x * 2
        self.done = True
        return y


@pytest.mark.parametrize("shapes", [None, ({1: "length"},)])
def test_a_table_for_the_sizes_is_not_warned_of(recwarn: pytest.WarningsRecorder, shapes: Any) -> None:
    module = Grid()
    program = export(module, (torch.rand(2, 6),), dynamic_shapes=shapes)
    assert program.captured.changed_attributes == []
    assert not [one for one in recwarn if "forward changes" in str(one.message)]
    assert module.size is None


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (Counter(), ["calls"]),
        (Last(), ["last"]),
        (Kept(), ["kept"]),
        (Once(), ["done"]),
        (Growing(), ["longest", "table"]),
    ],
)
def test_what_may_decide_something_is_told(module: nn.Module, names: list[str]) -> None:
    given, longer = ((torch.rand(2, 6),), {}), ((torch.rand(2, 12),), {})
    assert unsettled(names, module, given, [longer], has_axes=True) == names
    assert unsettled(["grid"], Grid(), given, [longer], has_axes=True) == []
    assert unsettled(["grid"], Grid(), given, [], has_axes=True) == ["grid"]  # at no other size it was seen
