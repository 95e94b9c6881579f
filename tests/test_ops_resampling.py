"""Interpolation against eager: every mode by sizes and by scales, with fixed and with free axes, at several sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from exporting import export_and_compare
from torch.export import Dim

from batch_export import export

pytestmark = pytest.mark.sampled

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


def compare(
    options: dict[str, Any],
    *,
    free: bool,
    sizes: tuple[tuple[int, ...], ...] = ((9, 11), (10, 7)),
    tolerance: float = 2e-5,
) -> None:
    torch.manual_seed(0)
    first, *more = (torch.randn(2, 2, *size) for size in (sizes if free else sizes[:1]))
    shapes = ({place + 2: Dim(f"d{place}", min=2, max=512) for place in range(len(sizes[0]))},) if free else None
    export_and_compare(
        Interpolation(**options), (first,), *((x,) for x in more), tolerance=tolerance, dynamic_shapes=shapes
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiasing(mode: str, align_corners: bool, way: str) -> None:
    options = {**WAYS[way], "mode": mode, "align_corners": align_corners, "antialias": True}
    compare(options, free=way in ("smaller", "two scales"))


@pytest.mark.parametrize("way", WAYS)
def test_nearest_exact_with_free_axes(way: str) -> None:
    compare({**WAYS[way], "mode": "nearest-exact"}, free=True)


@pytest.mark.parametrize(("old", "new", "order"), [((14, 11), (4, 30), [2, 1]), ((14, 11), (28, 5), [1, 2])])
@pytest.mark.parametrize("free", [False, True])
def test_single_elements_are_not_gathered(
    free: bool, old: tuple[int, int], new: tuple[int, int], order: list[int]
) -> None:
    """Slices of memory are taken instead; where sizes are known, along the axis first that becomes shorter."""
    axes = ({0: "batch", 2: Dim("height", min=1), 3: Dim("width", min=1)},)
    image = torch.randn(2, 3, *old)
    program = export_and_compare(
        Interpolation(size=new, mode="nearest-exact"),
        (image,),
        *([(image[:1, :, :2, :7],)] if free else []),
        dynamic_shapes=axes if free else None,
    )
    gathered = [node for node in program.model.graph if node.op_type == "Gather"]
    assert [node.attributes["axis"].as_int() for node in gathered] == ([1, 2] if free else order)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("way", ["scale", "smaller"])
def test_plain_modes_with_free_axes(mode: str, way: str) -> None:
    compare({**WAYS[way], "mode": mode}, free=True)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("scale", [0.7, 1.1, *(pytest.param(one, marks=pytest.mark.ops) for one in (1.3, 0.6, 1 / 3))])
def test_scales_that_float32_does_not_have_give_as_many_elements_as_in_torch(mode: str, scale: float) -> None:
    sizes = ((12, 9), (90, 7), (14, 130), (3, 3))
    # A place near 100 has three decimals less in float32 than one near 0.
    compare({"scale_factor": (scale, 1.0), "mode": mode}, free=True, sizes=sizes, tolerance=5e-4)


def test_nearest_elements_by_the_size_of_another_image() -> None:
    class Pyramid(torch.nn.Module):
        def forward(self, coarse: torch.Tensor, fine: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(coarse, fine.shape[2:], mode="nearest") + fine

    first, *more = (
        (torch.randn(1, 2, *old), torch.randn(1, 2, *new))
        for old, new in (((12, 5), (5, 12)), ((14, 14), (4, 8)), ((26, 30), (8, 4)), ((1, 28), (3, 16)))
    )
    export_and_compare(Pyramid(), first, *more, dynamic_shapes=({2: "h", 3: "w"}, {2: "a", 3: "b"}))


@pytest.mark.parametrize(("old", "new"), [(14, 4), (14, 8), (28, 8), (7, 21), (30, 16)])
def test_nearest_elements_of_fixed_sizes(old: int, new: int) -> None:
    compare({"size": (new, old), "mode": "nearest"}, free=False, sizes=((old, old),))


@pytest.mark.parametrize("scale", [1.1, 1.4, 1.7, 2, 41])
def test_nearest_elements_of_one_axis(scale: float) -> None:
    compare({"scale_factor": scale, "mode": "nearest"}, free=True, sizes=((9,), (7,), (3,), (50,)))


@pytest.mark.parametrize(("mode", "sizes"), [("linear", ((9,), (3,))), ("trilinear", ((5, 6, 7), (3, 7, 9)))])
@pytest.mark.parametrize("align_corners", [False, True])
def test_linear_over_one_and_three_axes(mode: str, sizes: tuple[tuple[int, ...], ...], align_corners: bool) -> None:
    compare({"scale_factor": 0.45, "mode": mode, "align_corners": align_corners}, free=True, sizes=sizes)


@pytest.mark.parametrize("options", [{"scale_factor": 1.5}, {"size": 7, "align_corners": True}], ids=str)
def test_a_row_of_linear_interpolation_is_not_touched_by_its_neighbours(options: dict[str, Any]) -> None:
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0], [float("nan"), float("inf"), 1e9, 0.0], [0.0, 1.0, 0.0, 3.0]]])
    export_and_compare(Interpolation(mode="linear", **options), (x,), tolerance=2e-5)


DOUBLES: dict[str, tuple[dict[str, Any], int, int]] = {
    "line": ({"mode": "linear", "scale_factor": 1.3}, 1, 5),
    "image": ({"mode": "bilinear", "size": (7, 3)}, 2, 10),
    "corners": ({"mode": "bilinear", "size": (7, 8), "align_corners": True}, 2, 10),
    "same": ({"mode": "bilinear", "scale_factor": 1.1}, 2, 8),
    "volume": ({"mode": "trilinear", "scale_factor": 0.6}, 3, 15),
}


@pytest.mark.parametrize("name", DOUBLES)
@pytest.mark.parametrize("free", [False, True])
def test_doubles_between_neighbours_are_eagers_sums_of_them(name: str, free: bool) -> None:
    """The sign of zeros stays, and what is infinite stays infinite where its share is more than 0."""
    options, rank, nodes = DOUBLES[name]
    module = Interpolation(**options)
    x = torch.randn(2, 3, *[5] * rank, dtype=torch.float64)
    x[0, 0], x.view(-1)[::13], x.view(-1)[-1] = -0.0, -0.0, float("inf")
    shapes = ({axis + 2: f"n{axis}" for axis in range(rank)},) if free else None
    program = export(module, (x,), dynamic_shapes=shapes, opset_version=20)
    if not free:
        assert sum(1 for _ in program.model.graph.all_nodes()) == nodes
    for given in (x, torch.cat([x, -x], -1)) if free else (x,):
        found, expected = program(given)[0], module(given)
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-13, atol=1e-13)
        assert torch.equal(found[expected == 0].signbit(), expected[expected == 0].signbit())


BYTES: dict[str, dict[str, Any]] = {
    "size": {"size": (5, 8)},
    "larger": {"size": (13, 11)},
    "scale": {"scale_factor": (1.7, 0.6)},
    "corners": {"size": (5, 14), "align_corners": True},
}


@pytest.mark.parametrize("way", BYTES)
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes_are_resized_in_whole_numbers(mode: str, antialias: bool, way: str) -> None:
    torch.manual_seed(0)
    images = [torch.randint(0, 256, size, dtype=torch.uint8) for size in ((2, 3, 9, 11), (1, 5, 20, 7))]
    first, *more = images if way == "scale" else images[:1]
    shapes = ({0: "b", 1: "c", 2: "h", 3: "w"},) if way == "scale" else None
    export_and_compare(
        Interpolation(mode=mode, antialias=antialias, **BYTES[way]),
        (first,),
        *((x,) for x in more),
        tolerance=0,
        dynamic_shapes=shapes,
    )


class Sampling(torch.nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, grid, align_corners=False, **self.options)


@pytest.mark.parametrize("axes", [2, 3])
def test_points_half_way_are_reflected_before_they_are_rounded(axes: int) -> None:
    torch.manual_seed(0)
    cases = [
        (torch.randn(2, 3, *(4, 5, 3)[:axes]), (torch.randn(2, *(3, 7, 2)[:axes], axes) * 8).round() / 4),
        (torch.randn(1, 3, *(1, 6, 2)[:axes]), (torch.randn(1, *(2, 1, 5)[:axes], axes) * 8).round() / 4),
    ]
    free: Any = ({0: "b", 2: "h", 3: "w"}, {0: "b", 1: "u", 2: "v"})
    export_and_compare(
        Sampling(mode="nearest", padding_mode="reflection"),
        cases[0],
        *(cases[1:] if axes == 2 else ()),
        tolerance=0,
        dynamic_shapes=free if axes == 2 else None,
    )


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_points_far_beyond_the_border_are_the_last_elements(mode: str) -> None:
    grid = torch.tensor([[[[1e30, 0.0], [-1e30, 1e20], [float("inf"), 0.5]]]])
    export_and_compare(Sampling(mode=mode, padding_mode="border"), (torch.randn(1, 2, 4, 5), grid), tolerance=1e-6)


def test_points_that_are_no_numbers_are_reflected_to_some_element() -> None:
    points = torch.tensor([[[[float("nan"), 0.0], [float("inf"), 0.5], [0.3, float("-inf")]]]])
    x = torch.randn(1, 2, 4, 5)
    program = export(Sampling(mode="nearest", padding_mode="reflection"), (x, torch.zeros_like(points)))
    found = program(x, points)[0]
    assert all(one in x[0, channel] for channel in range(2) for one in found[0, channel].flatten())
    program.release()
