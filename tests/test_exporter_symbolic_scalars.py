"""Numbers made of free sizes where torch's operators take a Python number, and pieces counted from an axis's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as nn_functional

from tests.exporting import export_and_compare


class Computing(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


FLOATS: dict[str, Callable[[torch.Tensor], Any]] = {
    "addmm": lambda x: torch.addmm(x, x, x.mT @ x, alpha=x.shape[0], beta=x.shape[0] - 1),
    "addmm, beta of 0": lambda x: torch.addmm(x / 0, x, x.mT @ x, beta=x.shape[0] - 3),
    "baddbmm": lambda x: torch.baddbmm(x[None], x[None], (x.mT @ x)[None], alpha=x.shape[0]),
    "remainder": lambda x: (torch.remainder(x, x.shape[0]), x.shape[0] % (x + 0.5)),
    "activations": lambda x: (
        nn_functional.leaky_relu(x, x.shape[0]),
        nn_functional.elu(x, x.shape[0]),
        nn_functional.threshold(x, x.shape[0], 0),
    ),
    "narrow from the end": lambda x: (x.narrow(0, -2, 2), x.narrow(1, -1, 1), x.narrow(0, -2, 1)),
    "narrow of a free length": lambda x: (x.narrow(0, -x.shape[0], x.shape[0]), x.narrow(0, 1, x.shape[0] - 1)),
    "write to the end": lambda x: (y := x.clone(), y.narrow(0, -1, 1).mul_(3))[0],
}
INTEGERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "xor": lambda x: (x ^ x.shape[0], x.bitwise_xor(x.shape[0])),
    "and, or": lambda x: (x & x.shape[0]) | (x.shape[0] + 1),
    "shift": lambda x: x << x.shape[0],
}


@pytest.mark.parametrize("name", FLOATS)
def test_sizes_as_scalars_of_floats(name: str) -> None:
    examples = [(torch.randn(size, 3),) for size in (4, 3, 2, 7)]
    export_and_compare(Computing(FLOATS[name]), *examples, dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("name", INTEGERS)
def test_sizes_as_scalars_of_integers(name: str) -> None:
    examples = [(torch.randint(-9, 9, (size, 3)),) for size in (4, 2, 7)]
    export_and_compare(Computing(INTEGERS[name]), *examples, dynamic_shapes=({0: "n"},))
