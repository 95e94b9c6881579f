"""List comprehensions over a free axis are one operator where a loop that appends is; others stay as they are."""

from __future__ import annotations

import ast
import warnings

import pytest
import torch
from exporting import export_and_compare

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export
from batch_export.exporter.capture.listed_loops import as_loop


class Listed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = torch.full((4,), 3.0)
        turned = self.linear(torch.stack([self.linear(one) for one in reversed(x.unbind(1))], 1))
        sums = [(x[:, step] * (step + 1)).sum(-1) for step in range(x.shape[1])]
        both = torch.cat([row * (place + 1) for place, row in enumerate(x.unbind(1))], -1)
        return turned * one, torch.stack(sums, 1) + len(sums), both


def test_comprehensions_over_a_free_axis() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        others = [(torch.randn(3, size, 4),) for size in (1, 2, 9)]
        export_and_compare(Listed(), (torch.randn(2, 6, 4),), *others, dynamic_shapes=({0: "batch", 1: "n"},))


class Written(torch.nn.Module):
    """Writes through one of the slices, which the tensor shows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        rows = [row for row in y.unbind(1)]
        rows[0].add_(1)
        return y + torch.stack(rows, 1)


class Advancing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        factors = iter([1.0, 2.0, 3.0, 4.0])
        return torch.stack([row * next(factors) for row in x.unbind(1)], 1)


@pytest.mark.parametrize("module", [Written(), Advancing()])
def test_comprehensions_that_reach_further_count_with_the_examples_size(module: torch.nn.Module) -> None:
    with pytest.raises(DynamicShapeError, match="makes it 4"):
        export(module, (torch.randn(2, 4, 3),), dynamic_shapes=({1: "n"},))


@pytest.mark.parametrize(
    "text",
    [
        "y = torch.stack([f(a) for a in x.unbind(1)]) if x.shape[1] else x",
        "y = g() + torch.stack([f(a) for a in x.unbind(1)])",
        "y = torch.stack([f(a) for a in x.unbind(1) if a.sum()])",
        "y = torch.stack([f(a)(lambda: a) for a in x.unbind(1)])",
        "y[0] += torch.stack([a for a in x.unbind(1)])",
        "y = [y + a for a in x.unbind(1)]",
        "y = torch.stack([f(a, b) for a in x.unbind(1) for b in x.unbind(0)])",
    ],
)
def test_what_is_evaluated_otherwise_stays(text: str) -> None:
    assert as_loop(ast.parse(text).body[0], 1) is None
