"""Parts of a model under autocast: operators compute with inputs that torch has converted, and rounded, before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import assert_same, eager
from torch.nn import functional

from batch_export import export

W = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))


def product(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x @ W, x], 1)


def layer(x: torch.Tensor) -> torch.Tensor:
    return functional.linear(x, W, W[0]).softmax(-1)


def within(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x @ W
    with torch.no_grad():
        z = y @ W
    with torch.autocast("cpu", enabled=False):
        plain = y.float() @ W
    return z, plain, functional.mse_loss(y, x)


class Under(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.function(x)


@pytest.mark.parametrize("function", [product, layer, within], ids=lambda one: one.__name__)
@pytest.mark.parametrize("rows", [None, "n"])
def test_inputs_are_rounded_as_eager_rounds_them(function: Callable[[torch.Tensor], Any], rows: str | None) -> None:
    x = torch.randn(48, 64, generator=torch.Generator().manual_seed(1))
    model = Under(function)
    program = export(model, (x,), dynamic_shapes=({0: rows},) if rows else None)
    actual = [one.float() for one in program(x)]
    assert_same(actual, [one.float() for one in eager(model, (x,))], tolerance=1e-6)
    program.release()


class Off(torch.nn.Module):
    """What a model computes with autocast switched off, wherever it is called."""

    def __init__(self, *, decides: bool) -> None:
        super().__init__()
        self.decides = decides

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            if not self.decides:
                return x @ W
            if x.mean() > 0:
                return x @ W * 2
            return x @ W - 1


@pytest.mark.parametrize("rows", [None, "n"])
def test_a_decision_by_data_where_autocast_is_off(rows: str | None) -> None:
    x = torch.randn(48, 64, generator=torch.Generator().manual_seed(1))
    model = Off(decides=True)
    program = export(model, (x,), dynamic_shapes=({0: rows},) if rows else None)
    for given in (x.abs(), -x.abs(), *([x[:5]] if rows else [])):
        assert_same(program(given), eager(model, (given,)), tolerance=1e-5)
    program.release()


def test_what_is_off_within_the_callers_own_autocast_is_off() -> None:
    x = torch.randn(48, 64, generator=torch.Generator().manual_seed(1))
    model = Off(decides=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        program = export(model, (x,))
        assert_same(program(x), eager(model, (x,)), tolerance=1e-6)
    program.release()
