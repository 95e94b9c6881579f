"""Random numbers that eager draws alike in each call, because forward seeds them, are warned of with the line."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from batch_export.errors import ExportWarning
from batch_export.exporter import export

Forward = Callable[[torch.Tensor], torch.Tensor]


class Drawing(torch.nn.Module):
    def __init__(self, draw: Forward) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.draw(x)


def _seeded(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    return x + torch.rand(x.shape)


def _seeded_dropout(x: torch.Tensor) -> torch.Tensor:
    torch.random.manual_seed(0)
    return torch.nn.functional.dropout(x, 0.5, training=True)


def _in_a_fork(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        noise = torch.randn(4)
    return x * noise


def _set_back(x: torch.Tensor) -> torch.Tensor:
    state = torch.get_rng_state()
    first = torch.rand(4)
    torch.set_rng_state(state)
    return x * (first - torch.rand(4))


def _of_a_new_generator(x: torch.Tensor) -> torch.Tensor:
    return x + torch.empty_like(x).normal_(generator=torch.Generator().manual_seed(3))


SEEDED: dict[str, Forward] = {
    "manual_seed": _seeded,
    "dropout": _seeded_dropout,
    "in a fork": _in_a_fork,
    "state set back": _set_back,
    "a generator of its own": _of_a_new_generator,
}


@pytest.mark.parametrize("name", SEEDED)
def test_seeds_in_forward_are_warned_of_with_the_line(name: str) -> None:
    before = torch.get_rng_state()
    with pytest.warns(ExportWarning, match=r"seeds random numbers \(.*at .*test_exporter_seeded_numbers\.py:\d+"):
        export(Drawing(SEEDED[name]), (torch.rand(3, 4, generator=torch.Generator()),), dynamic_shapes=({0: "n"},))
    assert torch.equal(before, torch.get_rng_state())


class Keeping(torch.nn.Module):
    def __init__(self, seed: int | None) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(7)
        self.seed = seed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.seed is not None:
            self.generator.manual_seed(self.seed)
        return x + torch.empty_like(x).normal_(generator=self.generator)


def test_an_own_generator_that_forward_seeds_is_named_and_put_back() -> None:
    model = Keeping(7)
    before = model.generator.get_state()
    with pytest.warns(ExportWarning, match=r"seeds random numbers \(of the generator generator\)"):
        export(model, (torch.rand(3, 4),))
    assert torch.equal(before, model.generator.get_state())


def _seeded_for_nothing(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(0)
    return x * 2


@pytest.mark.parametrize("model", [Drawing(_seeded_for_nothing), Drawing(torch.rand_like), Keeping(None)])
def test_what_is_not_seeded_or_draws_nothing_is_not_told(model: torch.nn.Module) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(model, (torch.rand(3, 4),))


class Counting(torch.nn.Module):
    def __init__(self, state: Any, step: Callable[[Any], float]) -> None:
        super().__init__()
        self.state = state
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.step(self.state)


def _counted(array: np.ndarray[Any, Any]) -> float:
    array += 1
    return float(array[0])


def _longer(text: bytearray) -> float:
    text.extend(b".")
    return len(text)


STEPS: dict[str, tuple[Any, Callable[[Any], float]]] = {
    "Python's generator": (random.Random(3), lambda state: state.random()),
    "numpy's generator": (np.random.default_rng(3), lambda state: float(state.random())),
    "numpy's older generator": (np.random.RandomState(3), lambda state: float(state.rand())),
    "an array": (np.zeros(1), _counted),
    "bytes": (bytearray(), _longer),
}


@pytest.mark.parametrize("name", STEPS)
def test_generators_and_arrays_that_forward_moves_on_are_named(name: str) -> None:
    with pytest.warns(ExportWarning, match="forward changes the attribute state, which a file cannot"):
        export(Counting(*STEPS[name]), (torch.rand(3, 4),))
