"""State that a model's code keeps outside of the model is named: a file computes with that of the first call."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch

from batch_export.errors import ExportWarning
from batch_export.exporter import export

Forward = Callable[[torch.Tensor], torch.Tensor]
CALLS = 0
COUNTS = {"calls": 0}
CACHE: dict[int, float] = {}
COUNTER = itertools.count(1)
GENERATOR = (number * 2 for number in range(100))


class Book:
    calls = 0


BOOK = Book()


def _by_default(x: torch.Tensor, seen: list[int] = []) -> torch.Tensor:  # noqa: B006
    seen.append(1)
    return x * len(seen)


def _counted(x: torch.Tensor) -> torch.Tensor:
    global CALLS
    CALLS += 1
    return x * CALLS


def _through_another(x: torch.Tensor) -> torch.Tensor:
    return _counted(x)


def _in_a_dict(x: torch.Tensor) -> torch.Tensor:
    COUNTS["calls"] += 1
    return x * COUNTS["calls"]


def _in_an_object(x: torch.Tensor) -> torch.Tensor:
    BOOK.calls += 1
    return x * BOOK.calls


def _in_a_class(x: torch.Tensor) -> torch.Tensor:
    Book.calls += 1
    return x * Book.calls


def _of_a_counter(x: torch.Tensor) -> torch.Tensor:
    return x * next(COUNTER)


def _of_a_generator(x: torch.Tensor) -> torch.Tensor:
    return x * next(GENERATOR)


def _closure() -> Forward:
    calls = 0

    def forward(x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return x * calls

    return forward


class Stateful(torch.nn.Module):
    def __init__(self, step: Forward) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x)


STATE: dict[str, tuple[Forward, str]] = {
    "a counter": (_of_a_counter, "global COUNTER"),
    "a generator": (_of_a_generator, "global GENERATOR"),
    "a default argument": (_by_default, "default argument of _by_default"),
    "a global": (_counted, "global CALLS"),
    "a global of a function that is called": (_through_another, "global CALLS"),
    "a number in a dict": (_in_a_dict, r"global COUNTS\['calls'\]"),
    "an object": (_in_an_object, r"global BOOK\.calls"),
    "a class": (_in_a_class, r"global Book\.calls"),
    "a closure": (_closure(), r"calls in the closure of _closure\.<locals>\.forward"),
}


@pytest.mark.parametrize("name", STATE)
def test_state_outside_of_the_model_is_named(name: str) -> None:
    step, said = STATE[name]
    with pytest.warns(ExportWarning, match=f"forward changes .*{said}, which a file cannot"):
        export(Stateful(step), (torch.rand(3, 4),))


def _cached(x: torch.Tensor) -> torch.Tensor:
    if x.shape[1] not in CACHE:
        CACHE[x.shape[1]] = 2.0
    return x * CACHE[x.shape[1]]


def test_what_is_only_added_to_a_dict_is_a_cache() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        export(Stateful(_cached), (torch.rand(3, 4),))


class Lazy:
    """A package that is not installed, as optional imports stand in for it: whatever is asked of it raises."""

    def __getattr__(self, name: str) -> object:
        raise ImportError("no such package")

    def __call__(self) -> None:
        raise ImportError("no such package")


LAZY = Lazy()


def _without_lazy(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.dim() == 2 else LAZY()  # type: ignore[func-returns-value]


def test_nothing_is_asked_of_what_the_code_names_and_does_not_use() -> None:
    export(Stateful(_without_lazy), (torch.rand(3, 4),))


def test_what_a_lazy_module_becomes_is_no_state_of_the_model() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = export(torch.nn.LazyLinear(3), (torch.randn(2, 4),))
    assert program.model.graph.inputs[0].shape == (2, 4)
