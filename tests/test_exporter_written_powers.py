"""Powers of negative numbers by a size or a step: torch writes `-1 ** step`, which Python reads as -(1 ** step)."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.scan import scan

from batch_export.exporter import export
from tests.exporting import assert_same


class ByStep(torch.nn.Module):
    """Signs and powers by each step of a loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x[0])
        for step in range(x.shape[0]):
            total = total * 0.5 + x[step] * (-1) ** step + x[step] * (-2.0) ** (step // 2 + 1)
        return torch.stack([x[step] * (-1) ** step for step in range(x.shape[0])]) + total


class ByWay(torch.nn.Module):
    """A power of a size in a branch by data."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * (-1) ** x.shape[0]
        return x * (-2) ** x.shape[0]


class Scanned(torch.nn.Module):
    """The same in torch's own loop, which eager runs by such code as well."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def step(carried: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return carried + row * (-1) ** x.shape[0], carried * 1

        last, rows = scan(step, torch.zeros(3), x)
        return rows + last

    def as_python_reads_it(self, x: torch.Tensor) -> torch.Tensor:
        sums = torch.cumsum(x * (-1) ** x.shape[0], 0)
        return torch.cat([torch.zeros(1, 3), sums[:-1]]) + sums[-1]


@pytest.mark.parametrize("module", [ByStep(), ByWay()])
def test_a_power_of_a_negative_number(module: torch.nn.Module) -> None:
    program = export(module, (torch.ones(4, 3),), dynamic_shapes=({0: "n"},))

    for length in (1, 2, 3, 4, 7):
        for x in (torch.randn(length, 3).abs(), -torch.randn(length, 3).abs()):
            assert_same(program(x), [module(x)])


def test_a_power_in_a_loop_of_torch() -> None:
    program = export(Scanned(), (torch.ones(4, 3),), dynamic_shapes=({0: "n"},))

    for length in (1, 2, 3, 4, 7):
        x = torch.randn(length, 3)
        assert_same(program(x), [Scanned().as_python_reads_it(x)])
