"""Loops over a free size that fill lists of as many places or reduce rows, and states that the first round widens."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import Called, export_and_compare

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
EXAMPLE, SHAPES = (torch.randn(2, 5, 4),), ({0: "b", 1: "t"},)
OTHERS = [(torch.randn(*sizes, 4),) for sizes in ((1, 3), (3, 7), (2, 9))]


def _lists_with_places(x: Tensor) -> Any:
    """From the front and from the back, of nothing and of a number that is read."""
    n, state = x.size(1), torch.zeros(x.shape[0], 4)
    ahead, back = [None] * n, n * [None]
    twice = [0.5] * x.shape[1]
    for t in range(n):
        state = torch.tanh(state + x[:, t])
        ahead[t] = state
    for t in reversed(range(n)):
        state = torch.tanh(state - x[:, t])
        back[t] = state
    for t in range(x.shape[1]):
        twice[t] = twice[t] + x[:, t]
    if x.dim() == 3:
        first = [None for _ in range(n)]
        for t in range(n):
            first[t] = x[:, t].cumsum(-1) * (t + 1)
    return tuple(torch.stack(one, 1) for one in (ahead, back, twice, first))


def _reduced(x: Tensor) -> Any:
    """Of slices, of a list under a name, of a tensor, from something on, and of what is no row."""
    rows, layers = list(x.unbind(1)), [torch.tanh, torch.exp]
    first = functools.reduce(lambda a, b: a * 0.5 + b, x.unbind(1))
    largest = functools.reduce(torch.maximum, rows) + 1
    total = functools.reduce(torch.add, x.transpose(0, 1))
    begun = functools.reduce(lambda a, b: torch.tanh(a) + b, rows, torch.ones(x.shape[0], 4))
    return first, largest, total, begun, functools.reduce(lambda a, layer: layer(a), layers, x)


def _parts_of_rows(x: Tensor) -> Any:
    """Each beside its neighbours, and all behind the first one."""
    rows = x.unbind(1)
    steps = torch.stack([later - one for one, later in zip(rows[:-1], rows[1:], strict=True)], 1)  # noqa: RUF007
    found, state = [], rows[0]
    for before, one, behind in zip(rows[:-2], rows[1:-1], rows[2:], strict=True):
        found.append(before - 2 * one + behind)
    for row in rows[1:]:
        state = state * 0.5 + row
    return steps, torch.stack(found, 1), state


def _elements_of_a_state(x: Tensor) -> Any:
    """What goes on is read at the step's place."""
    row, places = x[0] * 1, torch.arange(x.shape[1])
    alike = (x[0][:, None] - x[0][None]).abs().sum(-1) < 3
    keep = torch.ones(x.shape[1], dtype=torch.bool)
    for i in range(x.shape[1]):
        keep = torch.where(keep[i], keep & ~(alike[i] & (places > i)), keep)
    for t in range(x.shape[1]):
        row = row + row[t] * 0.1
    return keep, row


@pytest.mark.parametrize("loops", [_lists_with_places, _reduced, _parts_of_rows, _elements_of_a_state])
def test_loops_that_fill_and_reduce(loops: Callable[[Tensor], Any]) -> None:
    export_and_compare(Called(loops), EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)


class _Learned(torch.nn.Module):
    """States that are weights, without a batch of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.begin = torch.nn.Parameter(torch.randn(1, 4))
        self.plain = torch.nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor, with_all: bool = True) -> Any:
        state, cell, found = self.begin, self.plain, []
        for t in range(x.shape[1]):
            gate = torch.sigmoid(self.linear(x[:, t]) + state)
            cell = gate * cell + x[:, t]
            state = gate * torch.tanh(cell)
            found.append(state)
        return (torch.stack(found, 1), state, cell) if with_all else (state, cell)


def test_learned_states_get_the_batch_in_the_first_round() -> None:
    export_and_compare(_Learned(), EXAMPLE, *OTHERS, dynamic_shapes=SHAPES)
    others = [(*one, False) for one in OTHERS]
    with pytest.warns(ExportWarning, match=r"t (>= 1|!= 0).*test_exporter_filled_lists\.py"):  # then it has no batch
        export_and_compare(_Learned(), (*EXAMPLE, False), *others, dynamic_shapes=(*SHAPES, None))


def _asked_elsewhere(x: Tensor) -> Any:
    found = [None] * x.shape[1]
    for t in range(x.shape[1]):
        found[t] = x[:, t]
    for t in range(x.shape[1]):
        found[t] = found[t] + found[-1]
    return torch.stack(found, 1)


def _half_filled(x: Tensor) -> Any:
    found = [0.0] * x.shape[1]
    for t in range(x.shape[1] - 1):
        found[t] = x[:, t].sum()
    return torch.as_tensor(sum(found)) * len(found)


def _always_wider(x: Tensor) -> Any:
    state = x[:, :1]
    for _ in range(x.shape[1]):
        state = torch.cat([state, state.sum(1, keepdim=True)], 1)
    return state


@pytest.mark.parametrize("loop", [_asked_elsewhere, _half_filled, _always_wider])
def test_other_lists_and_states_count_with_the_example(loop: Callable[[Tensor], Any]) -> None:
    with pytest.raises(DynamicShapeError, match=r"test_exporter_filled_lists\.py:\d+"):
        export(Called(loop), EXAMPLE, dynamic_shapes=SHAPES)
    export_and_compare(Called(loop), EXAMPLE)
