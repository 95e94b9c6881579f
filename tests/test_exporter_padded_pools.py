"""Padding in front of a pool: numbers below the padding, pads as wide as the kernel, as onnxruntime optimises them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from batch_export import export

MODELS: dict[str, Callable[[Tensor], Tensor]] = {
    "maximum": lambda x: functional.max_pool2d(functional.pad(x, (1, 1, 1, 1)), 2),
    "one side": lambda x: functional.max_pool2d(functional.pad(x, (0, 1, 0, 1)), 3, 2),
    "pads of its own": lambda x: functional.max_pool2d(functional.pad(x, (1, 1, 1, 1)), 3, 2, padding=1),
    "as wide as the kernel": lambda x: functional.max_pool2d(functional.pad(x, (3, 3, 3, 3)), 3, 2),
    "one axis": lambda x: functional.max_pool1d(functional.pad(x[0], (2, 2)), 2),
    "average": lambda x: functional.avg_pool2d(functional.pad(x, (3, 3, 3, 3)), 3, 2),
    "without the padding": lambda x: functional.avg_pool2d(
        functional.pad(x, (1, 1, 1, 1)), 3, 2, padding=1, count_include_pad=False
    ),
    "of infinity": lambda x: functional.max_pool2d(functional.pad(x, (0, 1, 0, 1), value=float("-inf")), 3, 2),
    "used twice": lambda x: (padded := functional.pad(x, (1, 1, 1, 1))).sum() + functional.max_pool2d(padded, 2),
}


class Calls(torch.nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.parametrize("opset", [11, 17, 18, 23])
@pytest.mark.parametrize("name", MODELS)
def test_padding_is_not_taken_into_the_pool(name: str, opset: int) -> None:
    x = -torch.rand(1, 3, 9, 10) - 1
    model = Calls(MODELS[name])
    found = torch.as_tensor(export(model, (x,), opset_version=opset)(x)[0])
    torch.testing.assert_close(found, model(x))
