"""Resizing by scales that are made of sizes is right at every size, also where a length stays or doubles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from batch_export.exporter import export
from tests.exporting import assert_same

pytestmark = pytest.mark.sampled


class Resized(torch.nn.Module):
    """One picture, sound or volume by scales."""

    def __init__(self, mode: str, scales: Callable[..., object], **given: object) -> None:
        super().__init__()
        self.mode, self.scales, self.given = mode, scales, given

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=self.scales(*x.shape[2:]), mode=self.mode, **self.given)


def both(height: int, width: int) -> tuple[float, float]:
    return 8 / height, (width + 3.1) / width


def one(*sizes: int) -> float:
    return 14.5 / min(sizes)


@pytest.mark.parametrize(
    ("rank", "mode", "scales", "given"),
    [
        (4, "bilinear", both, {}),
        (4, "bilinear", one, {"align_corners": True}),
        (4, "bicubic", both, {}),
        (4, "bicubic", both, {"align_corners": True}),
        (4, "bicubic", lambda height, width: ((height + 0.1) / height, (width + 0.1) / width), {}),
        (4, "nearest", both, {}),
        (4, "nearest", lambda height, width: (2 * height / height, 16 / width), {}),
        (4, "nearest", lambda height, width: (2.1 * height / height, (width + 0.1) / width), {}),
        (4, "nearest", lambda height, width: (4 * 8.1 / height, (width + 90.1) / width), {}),
        (4, "nearest-exact", both, {}),
        (3, "nearest", lambda width: 16 / width, {}),
        (3, "linear", lambda width: (width + 0.5) / width, {}),
        (3, "nearest-exact", lambda width: 16 / width, {}),
        (5, "trilinear", lambda *sizes: (1.5, 8 / sizes[1], sizes[2] // 2 / sizes[2]), {}),
        (5, "nearest", one, {}),
        (4, "bilinear", both, {"recompute_scale_factor": True}),
        (4, "area", both, {}),
    ],
)
def test_scales_made_of_sizes(rank: int, mode: str, scales: Callable[..., object], given: dict[str, object]) -> None:
    model, axes = Resized(mode, scales, **given), {0: "b", **{axis: f"n{axis}" for axis in range(2, rank)}}
    program = export(model, (torch.randn(2, 3, *(10, 12, 9)[: rank - 2]),), dynamic_shapes=(axes,))

    lengths = itertools.product(*[(4, 7, 8, 16, 21)] * (rank - 2)) if rank < 5 else [(4, 8, 6), (5, 9, 16), (8, 7, 15)]
    for sizes in lengths:
        x = torch.randn(1, 3, *sizes)
        assert_same(program(x), [model(x)])


class Positions(torch.nn.Module):
    """A table of positions for an image of any size, as it is at its own."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 4, 4)
        self.positions = torch.nn.Parameter(torch.randn(1, 17, 8))
        self.beginning = torch.nn.Parameter(torch.randn(1, 1, 8))

    def encoded(self, x: torch.Tensor, width: int, height: int) -> torch.Tensor:
        count = self.positions.shape[1] - 1
        if x.shape[1] - 1 == count and width == height:
            return self.positions
        across, down = width // 4 + 0.1, height // 4 + 0.1
        side = int(math.sqrt(count))
        table = F.interpolate(
            self.positions[:, 1:].reshape(1, side, side, 8).permute(0, 3, 1, 2),
            scale_factor=(across / math.sqrt(count), down / math.sqrt(count)),
            mode="bicubic",
        )
        assert int(across) == table.shape[-2]
        assert int(down) == table.shape[-1]
        return torch.cat((self.positions[:, :1], table.permute(0, 2, 3, 1).view(1, -1, 8)), 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, _, width, height = x.shape
        x = torch.cat((self.beginning.expand(batch, -1, -1), self.patches(x).flatten(2).transpose(1, 2)), 1)
        return x + self.encoded(x, width, height)


def test_a_table_of_positions_by_scales_with_an_offset() -> None:
    torch.manual_seed(0)
    model = Positions().eval()
    program = export(model, (torch.randn(2, 3, 20, 28),), dynamic_shapes=({0: "b", 2: "w", 3: "h"},))

    for width, height in ((16, 16), (24, 24), (8, 32), (31, 14), (4, 4)):
        x = torch.randn(3, 3, width, height)
        assert_same(program(x), [model(x).detach()])
