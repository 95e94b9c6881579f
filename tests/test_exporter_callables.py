"""Models that are no modules."""

from __future__ import annotations

import functools

import pytest
import torch

from batch_export.exporter import export
from tests.exporting import assert_same


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
