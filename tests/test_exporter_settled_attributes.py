"""Attributes that forward changes: those that only remember tables for sizes are not warned of."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from batch_export.exporter import export
from batch_export.exporter.capture.settled_attributes import unsettled
from tests.exporting import export_and_compare


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


class Passed(nn.Module):
    """Hands a tensor to itself by an attribute that is not there before."""

    def forward(self, x: Tensor) -> Tensor:
        self.h = x * 2
        return self.h + 1


class Decoder(nn.Module):
    """Keeps the state of its steps, which each call begins anew."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.rows: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.state, self.rows = x.new_zeros(x.shape[0], 4), []
        for step in range(3):
            self.state = self.cell(x[:, step], self.state)
            self.rows.append(self.state)
        return torch.stack(self.rows, 1)


class Sometimes(nn.Module):
    """Writes at large sizes only, and goes on from what is there at others."""

    state: Any = 1.0

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[1] > 5:
            self.state = x.mean()
        return x * self.state


class Shared(nn.Module):
    """Counts for all modules of its class."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        Shared.calls += 1
        return x * Shared.calls


class ByDict(nn.Module):
    """Reads what it has past the attribute."""

    def forward(self, x: Tensor) -> Tensor:
        self.calls = vars(self).get("calls", 0) + 1
        return x * self.calls


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
        (Kept(), ["kept"]),
        (Once(), ["done"]),
        (Growing(), ["longest", "table"]),
        (Sometimes(), ["state"]),
        (Shared(), ["calls"]),
        (ByDict(), ["calls"]),
    ],
)
def test_what_may_decide_something_is_told(module: nn.Module, names: list[str]) -> None:
    given, longer, shorter = [((torch.rand(2, size),), {}) for size in (6, 12, 3)]  # type: ignore[var-annotated]
    assert unsettled(names, module, given, [longer, shorter], has_axes=True) == names
    assert unsettled(["grid"], Grid(), given, [longer], has_axes=True) == []
    assert unsettled(["grid"], Grid(), given, [], has_axes=True) == ["grid"]  # at no other size it was seen


@pytest.mark.parametrize("module", [Last(), Passed(), Decoder(), nn.Sequential(Passed(), Decoder())])
def test_what_each_call_writes_before_it_reads_it_is_not_warned_of(
    recwarn: pytest.WarningsRecorder, module: nn.Module
) -> None:
    others = [(torch.randn(batch, length, 4),) for batch, length in ((1, 9), (2, 3), (5, 4))]
    program = export_and_compare(module, (torch.randn(2, 6, 4),), *others, dynamic_shapes=({0: "b", 1: "n"},))
    assert program.captured.changed_attributes == []
    assert not [one for one in recwarn if "forward changes" in str(one.message)]
    assert type(module).__name__ in ("Last", "Passed", "Decoder", "Sequential")
