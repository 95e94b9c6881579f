"""`torch.istft`: any window, any number of frames, and a length that is a free size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from batch_export import export

pytestmark = pytest.mark.sampled


class Resynthesis(nn.Module):
    """A sound through its spectrum and back; `more` is what the length is longer than the sound."""

    def __init__(self, hop: int | None, window: int | None = None, more: int | None = None, **options: Any) -> None:
        super().__init__()
        self.hop, self.window, self.more, self.options = hop, window, more, options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        window = None if self.window is None else torch.hann_window(self.window)
        length = None if self.more is None else x.shape[-1] + self.more
        options = {**self.options, "win_length": self.window, "window": window}
        spectrum = torch.stft(x, 16, self.hop, return_complex=True, **options) * 0.5
        return torch.istft(spectrum, 16, self.hop, length=length, **options)


MODELS = {
    "as long as the sound": Resynthesis(4, 16, 0),
    "shorter": Resynthesis(5, 16, -3),
    "longer than the frames": Resynthesis(4, 16, 30),
    "of no length": Resynthesis(4, 12),
    "without a window": Resynthesis(None, None, 0, center=False),
    "both halves": Resynthesis(4, 16, 0, onesided=False),
    "normalised": Resynthesis(4, 16, None, normalized=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_sound_of_any_length_comes_back(name: str) -> None:
    model = MODELS[name]
    program = export(model, (torch.randn(2, 80),), dynamic_shapes=({0: "batch", 1: "time"},), opset_version=20)
    for size in ((2, 80), (1, 99), (3, 101), (1, 20)):
        x = torch.randn(size)
        torch.testing.assert_close(program(x)[0], model(x), rtol=1e-4, atol=1e-5)


def test_a_single_sound_of_float64_and_a_fixed_length() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, 15, 4, return_complex=True).istft(15, 4, length=50)

    x = torch.randn(80, dtype=torch.float64)
    torch.testing.assert_close(export(model, (x,))(x)[0], model(x))


@pytest.mark.parametrize("size", [16, 256])
def test_long_windows_take_as_many_operators_as_short_ones(size: int) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        window = torch.hann_window(size)
        return torch.istft(torch.stft(x, size, window=window, return_complex=True), size, window=window)

    program = export(model, (torch.randn(2, 800),), opset_version=20)
    assert sum(1 for _ in program.model.graph.all_nodes()) < 45


def test_what_eager_refuses_is_an_error() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.istft(torch.stft(x, 16, return_complex=True), 18)

    with pytest.raises(Exception, match="fft"):
        export(model, (torch.randn(2, 80),))
