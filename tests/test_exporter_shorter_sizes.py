"""Sizes padded to a multiple, and whole numbers made of fractions of sizes: what torch's algebra is given of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
import torch
from rarer import first
from torch.nn import functional

from batch_export import export

pytestmark = pytest.mark.sampled


class Windows(torch.nn.Module):
    """A linear layer in windows of an image, which is padded to whole ones, as window attention has them."""

    def __init__(self, window: int, blocks: int) -> None:
        super().__init__()
        self.window, self.blocks = window, blocks
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step = self.window
        _, high, wide, channels = x.shape
        for _ in range(self.blocks):
            y = functional.pad(x, (0, 0, 0, (step - wide % step) % step, 0, -high % step))
            padded = y.shape[1:3]
            y = y.view(y.shape[0], padded[0] // step, step, padded[1] // step, step, channels)
            y = self.linear(y.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, step * step, channels))
            batch = int(y.shape[0] / (padded[0] * padded[1] / step / step))
            y = y.view(batch, padded[0] // step, padded[1] // step, step, step, -1)
            y = y.permute(0, 1, 3, 2, 4, 5).contiguous().view(batch, *padded, -1)
            x = x + y[:, :high, :wide, :].contiguous()
        return x


@pytest.mark.parametrize("window", first(1, [7, 4]))
def test_windows_of_a_padded_image_take_seconds_not_minutes(window: int) -> None:
    module = Windows(window, blocks=2)
    begun = time.process_time()
    program = export(module, (torch.randn(2, 9, 11, 8),), dynamic_shapes=({0: "b", 1: "h", 2: "w"},))
    assert time.process_time() - begun < 20  # two minutes where each comparison is on what the fractions are made of
    for sizes in ((1, 1, 1), (2, 8, 14), (3, 7, 16), (1, 15, 4)):
        x = torch.randn(*sizes, 8)
        torch.testing.assert_close(program(x)[0], module(x))


ROUNDED: dict[str, Callable[[int], int]] = {
    "up": lambda n: math.ceil(n / 3) * 3,
    "down": lambda n: math.floor(n / 3) * 3,
    "cut off": lambda n: int(n / 3) * 3,
    "a difference cut off": lambda n: int((n - 4) / 3) + 5,
    "whole": lambda n: int(12 * n / 4 / 3),
    "a product of a fraction": lambda n: int(n * 0.1 * 10) + 1,
    "added and taken away": lambda n: int(n / 5 + 0.4 - 0.4) + int(n * 0.1 + 1.1 - 1.1),
    "two that are alike by algebra": lambda n: 2 * int((1 - 0.9) * n) + int(n - 0.9 * n),
    "missing": lambda n: n + -n % 3,
    "missing, of two": lambda n: n + 1 + (4 - (n + 1) % 4) % 4 - 1,
    "missing to nothing": lambda n: n + (3 - n % 3),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_sizes_are_what_python_makes_of_them(name: str) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            size = ROUNDED[name](x.shape[0])
            return torch.cat([torch.arange(size), torch.full((2,), size)])

    module = Module()
    program = export(module, (torch.randn(7),), dynamic_shapes=({0: "n"},))
    for size in (1, 2, 3, 4, 5, 6, 9, 10, 12, 20, 30, 31):
        x = torch.randn(size)
        torch.testing.assert_close(program(x)[0], module(x))
