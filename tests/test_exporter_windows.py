"""Windows and frequencies of signals, which torch makes of numbers alone: at a fixed length and at a free one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.exporting import export_and_compare

MADE: dict[str, Callable[[int], torch.Tensor]] = {
    "hann": torch.hann_window,
    "hamming": torch.hamming_window,
    "hamming, narrow": lambda n: torch.hamming_window(n, False, 0.5, 0.4),
    "blackman": torch.blackman_window,
    "bartlett": lambda n: torch.bartlett_window(n, periodic=False),
    "kaiser": torch.kaiser_window,
    "kaiser, narrow": lambda n: torch.kaiser_window(n, False, 9.0),
    "fftfreq": lambda n: torch.fft.fftfreq(n, d=0.3),
    "rfftfreq": lambda n: torch.fft.rfftfreq(n),
}


class Weighed(torch.nn.Module):
    def __init__(self, made: Callable[[int], torch.Tensor], *, fixed: int = 0) -> None:
        super().__init__()
        self.made, self.fixed = made, fixed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum() * self.made(self.fixed or x.shape[0])


@pytest.mark.parametrize("name", MADE)
def test_of_a_free_length(name: str) -> None:
    sizes = [(torch.rand(size),) for size in (1, 2, 7, 16)]
    export_and_compare(Weighed(MADE[name]), (torch.rand(6),), *sizes, dynamic_shapes=({0: "n"},))


@pytest.mark.parametrize("name", MADE)
def test_of_a_fixed_length(name: str) -> None:
    export_and_compare(Weighed(MADE[name], fixed=5), (torch.rand(3),))
