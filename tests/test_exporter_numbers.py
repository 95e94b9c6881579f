"""Python's numbers beside tensors and free sizes: fractions stay fractions, integers integers, lengths exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


class Called(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def full(number: Any) -> torch.Tensor:
    return torch.full((1,), number)


SIZES: dict[str, Callable[[torch.Tensor], Any]] = {
    "arange from a fraction": lambda x: torch.arange(0.5, x.shape[0]) + x.sum(),
    "arange by a fraction": lambda x: torch.arange(0, x.shape[0], 0.5) + x.sum(),
    "arange by a quotient": lambda x: torch.arange(0, 1.0, 1 / x.shape[0]) + x.sum(),
    "arange down": lambda x: torch.arange(x.shape[0], 0, -0.5) + x.sum(),
    "arange of int32": lambda x: torch.arange(x.shape[0], dtype=torch.int32),
    "linspace": lambda x: torch.linspace(0.5, x.shape[0], 7) + x.sum(),
    "where": lambda x: torch.where(x > 0, x.shape[0], 0.5),
    "clamp": lambda x: x.clamp(0.5, x.shape[0]),
    "integer times half": lambda x: x.long() * (x.shape[0] * 0.5),
    "int of a product": lambda x: full(int(x.shape[0] * 0.29)) + x.sum(),
    "int of a quotient": lambda x: full(int(x.shape[0] / 0.1)) + x.sum(),
    "ceil": lambda x: full(math.ceil(x.shape[0] * 0.1)) + x.sum(),
    "sqrt": lambda x: full(math.sqrt(x.shape[0])) + x.sum(),
    "in float64": lambda x: x.double() + x.shape[0] * 0.1,
    "padding by int": lambda x: torch.nn.functional.pad(x, (0, 0, 0, (4 - int(x.shape[0]) % 4) % 4)),
}


@pytest.mark.parametrize("name", SIZES)
def test_numbers_beside_a_free_size(name: str) -> None:
    others = [(torch.ones(size, 3),) for size in (10, 100, 7, 29)]
    export_and_compare(Called(SIZES[name]), (torch.ones(3, 3),), *others, dynamic_shapes=({0: "n"},))


BIG = torch.tensor([4097, 5001, -7, 94906267, 3037000500])

POWERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "square": lambda x: x.square(),
    "two": lambda x: x**2,
    "three": lambda x: x.pow(3),
    "five": lambda x: x.pow(5),
    "zero and one": lambda x: (x**0, x**1),
    "in place": lambda x: x.clone().pow_(2),
    "int32": lambda x: (x % 40000).int() ** 2,
    "int16": lambda x: (x % 180).short() ** 2,
    "uint8": lambda x: x.to(torch.uint8) ** 3,
    "base": lambda x: 3 ** (x.abs() % 30),
    "of tensors": lambda x: x ** torch.tensor([1, 2, 3, 1, 1]),
    "by a float": lambda x: (x % 100) ** 2.0,
    "root": lambda x: x.abs() ** 0.5,
    "beyond float64": lambda x: x + 9007199254740993,
}


@pytest.mark.parametrize("name", POWERS)
def test_powers_of_integers_are_exact(name: str) -> None:
    program = export_and_compare(Called(POWERS[name]), (BIG,), (BIG + 2,))
    outputs = program(BIG)
    expected = Called(POWERS[name])(BIG)
    for one, other in zip(outputs, expected if isinstance(expected, tuple) else [expected], strict=True):
        assert other.is_floating_point() or torch.equal(one, other)
