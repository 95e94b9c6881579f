"""Models that are no modules, and functions that forward finds in other places than its own module's names."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch

from batch_export.exporter import export
from tests.exporting import assert_same, export_and_compare

cropped = lambda x: x[:, :-1] if x.size(1) % 2 else x  # noqa: E731
CROPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "even": lambda x: x[:, :-1] if x.size(1) % 2 else x, "same": lambda x: x
}  # fmt: skip


class Scaled:
    def __init__(self) -> None:
        self.linear = torch.nn.Linear(4, 4)

    def __call__(self, x: torch.Tensor, times: int = 3) -> torch.Tensor:
        return self.linear(x) * times


@pytest.mark.parametrize("kind", ["object", "method", "partial"])
def test_an_object_that_is_called_is_a_model(kind: str) -> None:
    scaled = Scaled()
    models = {"object": scaled, "method": scaled.__call__, "partial": functools.partial(scaled, times=2)}
    with torch.no_grad():
        program = export(models[kind], (torch.randn(2, 4),), dynamic_shapes=({0: "b"},))
        for given in (torch.randn(2, 4), torch.randn(5, 4)):
            assert_same(program(given), [models[kind](given)])


class OfAttribute(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.crop = lambda x: x[:, :-1] if x.size(1) % 2 else x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.crop(x) * 2


class OfGlobal(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cropped(x) * 2


class OfMapping(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return CROPS["even"](x) * 2


@pytest.mark.parametrize("kind", [OfAttribute, OfGlobal, OfMapping])
def test_a_decision_of_a_lambda_is_one_of_a_function(kind: type[torch.nn.Module]) -> None:
    more = [(torch.randn(2, count),) for count in (1, 2, 7, 13)]
    export_and_compare(kind(), (torch.randn(2, 10),), *more, dynamic_shapes=({1: "n"},))
