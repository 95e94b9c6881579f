"""Interpolation against eager: every mode by sizes and by scales, with fixed and with free axes, at several sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from exporting import export_and_compare
from torch.export import Dim

WAYS: dict[str, dict[str, Any]] = {
    "size": {"size": (5, 8)},
    "scale": {"scale_factor": 1.7},
    "smaller": {"scale_factor": 0.45},
    "scale of the sizes": {"scale_factor": 1.7, "recompute_scale_factor": True},
    "two scales": {"scale_factor": (1.7, 0.6)},
}


class Interpolation(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, **self.options)


def compare(options: dict[str, Any], *, free: bool, sizes: tuple[tuple[int, ...], ...] = ((9, 11), (10, 7))) -> None:
    torch.manual_seed(0)
    first, *more = (torch.randn(2, 2, *size) for size in (sizes if free else sizes[:1]))
    shapes = ({place + 2: Dim(f"d{place}", min=2, max=512) for place in range(len(sizes[0]))},) if free else None
    export_and_compare(Interpolation(**options), (first,), *((x,) for x in more), tolerance=2e-5, dynamic_shapes=shapes)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiasing(mode: str, align_corners: bool, way: str) -> None:
    options = {**WAYS[way], "mode": mode, "align_corners": align_corners, "antialias": True}
    compare(options, free=way in ("smaller", "two scales"))


@pytest.mark.parametrize("way", WAYS)
def test_nearest_exact_with_free_axes(way: str) -> None:
    compare({**WAYS[way], "mode": "nearest-exact"}, free=True)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("way", ["scale", "smaller"])
def test_plain_modes_with_free_axes(mode: str, way: str) -> None:
    compare({**WAYS[way], "mode": mode}, free=True)


@pytest.mark.parametrize(("mode", "sizes"), [("linear", ((9,), (3,))), ("trilinear", ((5, 6, 7), (3, 7, 9)))])
@pytest.mark.parametrize("align_corners", [False, True])
def test_linear_over_one_and_three_axes(mode: str, sizes: tuple[tuple[int, ...], ...], align_corners: bool) -> None:
    compare({"scale_factor": 0.45, "mode": mode, "align_corners": align_corners}, free=True, sizes=sizes)


@pytest.mark.parametrize("options", [{"scale_factor": 1.5}, {"size": 7, "align_corners": True}], ids=str)
def test_a_row_of_linear_interpolation_is_not_touched_by_its_neighbours(options: dict[str, Any]) -> None:
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [float("nan"), float("inf"), 1e9, 0.0], [0.0, 1.0, 0.0, 3.0]]])
    export_and_compare(Interpolation(mode="linear", **options), (x,), tolerance=2e-5)
