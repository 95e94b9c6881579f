"""Loops over a free size whose rounds keep something in modules, read the step as a number, or hold other loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called
from rarer import first
from torch import nn

from batch_export import CaptureError, DynamicShapeError, export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
_LENGTHS = (5, 2, 1, 7)


def agrees(module: nn.Module, *, rows: int = 2) -> None:
    """The file of a module of (rows, free length, 3) gives what eager does, also at other lengths."""
    program = export(module, (torch.randn(rows, 5, 3),), dynamic_shapes=({1: torch.export.Dim("n", max=64)},))
    ran = 0
    for length in _LENGTHS:
        x = torch.randn(rows, length, 3)
        try:
            expected = module(x)
        except (RuntimeError, IndexError):  # the model's own limit
            continue
        ran += 1
        for one, other in zip(program(x), expected if isinstance(expected, tuple) else (expected,), strict=False):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
    program.release()
    assert ran > 2


class Spiking(nn.Module):
    """A neuron that keeps what is left over."""

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay
        self.kept: Any = None

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None:
            self.kept = torch.zeros_like(x)
        self.kept = self.decay * self.kept + x
        spike = (self.kept > 0.5).float()
        self.kept = self.kept - spike * 0.5
        return spike


class OfNeurons(nn.Module):
    """Two layers of neurons, begun anew in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.first, self.second = nn.Linear(3, 4), Spiking(0.9), Spiking(0.7)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.first.kept = self.second.kept = None
        total = 0
        for t in range(x.shape[1]):
            total = total + self.second(self.first(self.into(x[:, t])))
        return total / x.shape[1], self.second.kept


class OwnState(nn.Module):
    """A state that the loop's own function gives the module, a counter, and a pair that a method keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.pair = nn.GRUCell(3, 3), nn.LSTMCell(3, 3)
        self.h: Any = None
        self.state: Any = None
        self.steps = 0

    def step(self, x: Tensor) -> Tensor:
        self.steps += 1
        self.state = self.pair(x, self.state)
        return self.state[0] * self.steps

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.h, self.state, self.steps = x.new_zeros(x.shape[0], 3), None, 0
        outs = []
        for row in x.unbind(1):
            self.h = self.cell(row, self.h)
            outs.append(self.h)
        steps = torch.stack([self.step(x[:, t]) for t in range(x.shape[1])], 1)
        return torch.stack(outs, 1), steps, self.h


class OfLayers(nn.Module):
    """Layers of a known number, each of which goes over the length."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(3, 3) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in range(2):
            h, outs = torch.zeros(x.shape[0], 3), []
            for t in range(x.shape[1]):
                h = self.cells[layer](x[:, t], h)
                outs.append(h)
            x = torch.stack(outs, 1)
        return x


@pytest.mark.parametrize("kind", [OfNeurons, OwnState, OfLayers])
def test_modules_keep_what_goes_on(kind: Callable[[], nn.Module]) -> None:
    agrees(kind())


def _prefixes(x: Tensor) -> Any:
    """Parts up to the step and from it on, and ever longer pieces."""
    n, means, seen, windows, pieces, others = x.shape[1], [], [], [], [], []
    for t in range(n):
        weights = torch.softmax(x[:, t : t + 1] @ x[:, : t + 1].transpose(1, 2), -1)
        seen.append((weights @ x[:, : t + 1]).squeeze(1))
        means.append(x[:, t:].sum(1) / (n - t))
        windows.append(x[:, max(0, t - 1) : min(n, t + 2)].mean(1))
        pieces.append(x[:, : t + 1].cumsum(1))
    for t in range(n - 1, -1, -1):
        others.append(x[:, t:].sum(1) if t else x.sum(1) * 2)
    return torch.stack(seen, 1), torch.stack(means), torch.stack(windows), torch.cat(pieces, 1), torch.stack(others)


def _as_numbers(x: Tensor) -> Any:
    """The step in what is made of it, as an index of anything, and in what a round writes to for itself."""
    n, table, made, own = x.shape[1], torch.arange(80.0).view(2, 40), [], []
    for i in range(n):
        places = torch.arange(i, i + 3)
        made.append(x[:, i] * places + table[1, i + 1] + torch.full((3,), i) + torch.tensor([i, 2, i]).cos())
        part = x.clone()
        part[:, i] = 0
        part[:, :i] *= 2
        own.append(part.sum(1))
    return torch.stack(made), torch.stack(own), torch.roll(x, n - 1, 1)


def _within(x: Tensor) -> Any:
    """Loops within: of all pairs, of those before, of all pieces."""
    n, rows, sums, best = x.shape[1], [], [], torch.full((x.shape[0],), -1e9)
    for i in range(n):
        row, total = [], x[:, i] * 0
        for j in range(n):
            row.append((x[:, i] - x[:, j]).abs().sum(-1))
            if j != i:
                total = total + (x[:, i] * x[:, j]).tanh()
        rows.append(torch.stack(row, -1))
        for j in range(i + 1):
            total = torch.tanh(total + x[:, j])
        sums.append(total)
    for i in range(n):
        for j in range(i + 1, n + 1):
            best = torch.maximum(best, x[:, i:j].sum((1, 2)))
    return torch.stack(rows, 1), torch.stack(sums, 1), best


def _left_out(x: Tensor) -> Any:
    """Rounds that are left early, and places counted from 1."""
    h, mean = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        if t % 2 == 1:
            continue
        h = torch.tanh(x[:, t] + h)
    for place, row in enumerate(x.unbind(1), start=1):
        mean = mean + (row - mean) / place
    return h, mean


def _tables(x: Tensor) -> Any:
    """What is written part by part: a mask, channels, and a table that goes by what is beside and above."""
    n, out = x.shape[1], torch.zeros_like(x)
    mask, costs, best = torch.zeros(n, n), torch.cdist(x[0], x[1]), torch.full((n + 1, n + 1), 1e9)
    for t in range(n):
        mask[t, : t + 1] = 1
        out[:, t, 0] = x[:, t, 1]
        out[:, t, 1:] = x[:, t, :2] * 2
        out[:, t, 1] += out[:, t, 0]
    best[0, 0] = 0
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            above = torch.minimum(best[i - 1, j], best[i - 1, j - 1])
            best[i, j] = costs[i - 1, j - 1] + torch.minimum(above, best[i, j - 1])
    return mask, out, best[n, n]


@pytest.mark.parametrize("loops", first(3, [_prefixes, _within, _tables, _as_numbers, _left_out]))
def test_steps_as_numbers_and_loops_within(loops: Callable[[Tensor], Any]) -> None:
    agrees(Called(loops))


class Listing(nn.Module):
    """Puts what it sees into a list of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def note(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        self.seen = []
        outs = [self.note(x[:, : t + 1].sum(1)) for t in range(x.shape[1])]
        return torch.stack(outs) + len(self.seen)


class InPlace(nn.Module):
    """Writes to what it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Any = None

    def step(self, x: Tensor) -> Tensor:
        held = self.kept
        held.mul_(0.5).add_(x)
        self.kept = held
        return self.kept * 1

    def forward(self, x: Tensor) -> Tensor:
        self.kept = torch.zeros_like(x[:, 0])
        return torch.stack([self.step(x[:, : t + 1].sum(1)) for t in range(x.shape[1])])


class Choosing(nn.Module):
    """Asks a module that keeps something on one side of a choice by the step."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Spiking(0.9)

    def forward(self, x: Tensor) -> Tensor:
        self.inner.kept = torch.zeros_like(x[:, 0])
        h = x[:, 0] * 1
        for t in range(x.shape[1]):
            h = self.inner(x[:, t]) if t % 2 else h * 0.5
        return h


def _of_an_iterator(x: Tensor) -> Tensor:
    factors = iter([1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    return torch.stack([x[:, : t + 1].sum(1) * next(factors) for t in range(x.shape[1])])


def _counting(x: Tensor) -> Tensor:
    counted, outs = {"rounds": 0}, []
    for t in range(x.shape[1]):
        counted.update(rounds=counted["rounds"] + 1)
        outs.append(x[:, : t + 1].sum(1) * counted["rounds"])
    return torch.stack(outs)


@pytest.mark.parametrize(
    "module",
    first(3, [Listing(), InPlace(), Choosing(), Called(_of_an_iterator), Called(_counting)]),
    ids=["list", "in place", "choice", "iterator", "dict"],
)
def test_what_goes_on_otherwise_is_refused(module: nn.Module) -> None:
    with pytest.raises(DynamicShapeError, match="the model makes it 5"):
        export(module, (torch.randn(2, 5, 3),), dynamic_shapes=({1: "n"},))


def _scaled(x: Tensor) -> Tensor:
    out = torch.zeros(x.shape[0])
    for i in range(x.shape[0]):
        out[i] = x[i].sum() / math.log(i + 2)
    return out


def _then_another(x: Tensor) -> tuple[Tensor, Tensor]:
    other = torch.zeros(x.shape[0])
    scaled = _scaled(x)
    for i in range(x.shape[0]):
        other[i] = x[i].sum()
    return scaled, other


def _then_a_question(x: Tensor) -> tuple[Tensor, Tensor]:
    state = torch.zeros(3)
    for i in range(x.shape[0]):
        state = state * 0.5 + x[i] / math.sqrt(i + 1)
    if x.shape[0] == 0:
        return state + 100, torch.ones(1)
    return state, torch.ones(1)


def _then_a_size(x: Tensor) -> tuple[Tensor, Tensor]:
    return _scaled(x), torch.ones(max(x.shape[0], 1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("function", first(1, [_then_a_question, _then_another, _then_a_size]))
def test_what_a_round_says_of_the_length_holds_in_rounds_only(function: Callable[[Tensor], Any]) -> None:
    program = export(Called(function), (torch.randn(4, 3),), dynamic_shapes=({0: "n"},))
    for length in (4, 0, 1, 7):
        x = torch.randn(length, 3)
        for one, other in zip(program(x), function(x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def _chosen_rows(x: Tensor) -> Tensor:
    rows, state = x[x[:, 0] > 0], torch.zeros(3)
    for i, row in enumerate(rows):
        state = state * 0.5 + row * math.sqrt(i + 1)
    return state + 7 if rows.shape[0] == 0 else state


def test_what_a_round_says_of_rows_that_data_choose_holds_in_rounds_only() -> None:
    x = torch.randn(4, 3)
    try:
        program = export(Called(_chosen_rows), (x,), dynamic_shapes=({0: "n"},))
    except (CaptureError, DynamicShapeError):
        return
    for sign in (1, -1):
        torch.testing.assert_close(program(sign * x.abs())[0], _chosen_rows(sign * x.abs()))
