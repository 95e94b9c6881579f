"""Convolutions whose groups are the elements of a free batch, each by weights of its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


class Modulated(torch.nn.Module):
    """Weights that a style scales for each picture."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(1, 6, 4, 3, 2))

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        weight = self.weight * style.view(batch, 1, channels, 1, 1)
        x, weight = x.reshape(1, -1, height, width), weight.reshape(batch * 6, channels, 3, 2)
        made = functional.conv2d(x, weight, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=batch)
        return made.view(batch, 6, *made.shape[2:])


class Enlarged(Modulated):
    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        weight = (self.weight * style.view(batch, 1, channels, 1, 1)).transpose(1, 2).reshape(-1, 6, 3, 2)
        x, bias = x.reshape(1, -1, height, width), style[:, :1].expand(batch, 6).reshape(-1)
        made = functional.conv_transpose2d(
            x, weight, bias, stride=2, padding=1, output_padding=(0, 1), groups=batch, dilation=(1, 3)
        )
        return made.view(batch, 6, *made.shape[2:])


class Matched(torch.nn.Module):
    """Each channel against its own of a small pattern."""

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        batch, channels = x.shape[:2]
        pattern = torch.outer(style.reshape(-1), torch.arange(3.0)).unsqueeze(1)
        made = functional.conv1d(x.flatten(2).view(1, batch * channels, -1), pattern, groups=batch * channels)
        return made.view(batch, channels, -1)


@pytest.mark.parametrize("kind", [Modulated, Enlarged, Matched])
def test_a_group_for_each_element_of_a_free_batch(kind: type[torch.nn.Module]) -> None:
    def given(batch: int, height: int, width: int) -> tuple[Tensor, Tensor]:
        return torch.randn(batch, 4, height, width), torch.randn(batch, 4)

    shapes = ({0: "batch", 2: "height", 3: "width"}, {0: "batch"})
    export_and_compare(kind(), given(3, 5, 6), given(1, 8, 5), given(5, 4, 7), dynamic_shapes=shapes)


class PaddedBySizes(torch.nn.Module):
    """A correlation of all shifts, and a kernel as long as the other input is: paddings are sizes."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        shifted = functional.conv1d(x[None], y[:, None], groups=2, padding=y.shape[1] - 1)
        image = functional.conv2d(x[None, None], torch.ones(1, 1, 2, 3), None, (1, 2), padding=(1, x.shape[1] // 2))
        return shifted, image


def test_a_padding_of_free_size() -> None:
    sizes = [(6, 4), (4, 6), (3, 1), (7, 3), (12, 5)]
    first, *others = [(torch.randn(2, n), torch.randn(2, m)) for n, m in sizes]
    export_and_compare(PaddedBySizes(), first, *others, dynamic_shapes=({1: "n"}, {1: "m"}))
