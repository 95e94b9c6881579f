"""Sizes at which formulas end: empty axes, lengths that a scale leaves alone, windows that are not counted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import export_and_compare
from torch import Tensor, nn
from torch.nn import functional

pytestmark = pytest.mark.sampled


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


ROWS: dict[str, Callable[[Tensor], Any]] = {
    "diagonal_scatter": lambda x: (torch.diagonal_scatter(x, x.diagonal() * 2), x.diagonal_scatter(x.diagonal(1), 1)),
    "unique_consecutive": lambda x: torch.unique_consecutive(x.round(), return_inverse=True, return_counts=True),
    "halves": lambda x: (*torch.cat([x, x]).chunk(2), functional.glu(torch.cat([x, x]), 0)),
    "trapezoid": lambda x: (torch.trapezoid(x, dim=0), torch.trapezoid(x, dx=0.5, dim=1)),
    "middle": lambda x: (x.median(), x.nanmedian()),
    "mode": lambda x: (x.round().mode(1)[0], x.round().mode(1, keepdim=True)[1]),
    "divided_by_its_size": lambda x: (x.long() % x.shape[0], x.long() // x.shape[0], torch.fmod(x.long(), x.shape[0])),
    "norms": lambda x: (x.norm(3, keepdim=True), x.norm(1), x.norm(dim=1), x.norm(0, dim=0)),
    "no_columns": lambda x: (x[:, :0].reshape(x.shape[0], 0, 3), functional.linear(x[:, :0], torch.ones(2, 0))),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_none_and_one(name: str) -> None:
    torch.manual_seed(0)
    first, *more = (torch.randn(count, 4) for count in (3, 0, 1, 6))
    export_and_compare(Calls(ROWS[name]), (first,), *((x,) for x in more), dynamic_shapes=(({0: "n"},),))


def test_repeats_that_the_data_say() -> None:
    given = [(torch.randn(n, 2), torch.arange(n) % 3) for n in (4, 0, 1)]
    module = Calls(lambda x, often: x.repeat_interleave(often, 0))
    export_and_compare(module, *given, dynamic_shapes=(({0: "n"}, {0: "n"}),))


def test_writes_through_a_diagonal_of_none() -> None:
    def doubled(x: Tensor) -> Tensor:
        y = x.clone()
        y.diagonal().mul_(2.0)
        return y

    export_and_compare(
        Calls(doubled), *((torch.randn(n, n),) for n in (3, 0, 1)), dynamic_shapes=(({0: "n", 1: "n"},),)
    )


def test_half_precision_with_an_inner_axis_of_none() -> None:
    def product(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return torch.addmm(z, x, y, beta=0.5)

    z = torch.randn(2, 5).half()
    given = [(torch.randn(2, n).half(), torch.randn(n, 5).half(), z) for n in (3, 0)]
    export_and_compare(Calls(product), *given, tolerance=2e-3, dynamic_shapes=(({1: "n"}, {0: "n"}, None),))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("is_free", [False, True])
def test_a_scale_that_leaves_the_size_as_it_is(mode: str, is_free: bool) -> None:
    torch.manual_seed(0)
    sizes = [(3, 4), (4, 9), (7, 3)] if is_free else [(3, 4)]
    module = Calls(lambda x: functional.interpolate(x, scale_factor=1.2, mode=mode))
    axes = (({2: "h", 3: "w"},),) if is_free else None
    given = [(torch.randn(1, 2, *size),) for size in sizes]
    export_and_compare(module, *given, dynamic_shapes=axes, guards="allow")


def test_a_scale_that_doubles_the_size_in_small_and_in_large_images() -> None:
    module = Calls(lambda x: functional.interpolate(x, scale_factor=2.3, mode="nearest"))
    shapes = (({2: "h", 3: "w"},),)
    given = [(torch.randn(1, 2, *size),) for size in ((3, 5), (3, 80), (2, 2))]
    export_and_compare(module, *given, dynamic_shapes=shapes, guards="allow")


@pytest.mark.parametrize("opset", [18, 23])
def test_windows_that_begin_behind_the_elements(opset: int) -> None:
    def pooled(x: Tensor) -> Any:
        return (
            functional.max_pool2d(x, 2, 3, ceil_mode=True),
            functional.max_pool2d(x, 2, 3, ceil_mode=True, return_indices=True),
            functional.max_pool1d(x[0], 2, 3, ceil_mode=True),
        )

    export_and_compare(Calls(pooled), (torch.randn(1, 2, 9, 10),), opset_version=opset)


@pytest.mark.parametrize(
    "read",
    [
        lambda x, m, i: x[m, i],
        lambda x, m, i: x[i, :, m[0]],
        lambda x, m, i: x[m[:, 0], m[0]],
        lambda x, m, i: x[:, i[:, None], m[0]],
    ],
)
def test_a_mask_beside_indices_reads_the_places_that_it_names(read: Callable[..., Any]) -> None:
    first = torch.tensor([[True, False, True, False], [True, True, False, False], [False, False, False, True]])
    second = torch.tensor([[False, False, True, False], [True, False, False, False], [False] * 4])
    given = [(torch.randn(3, 4, 4), mask, torch.tensor([2])) for mask in (first, second)]
    export_and_compare(Calls(read), *given)


def test_two_masks_of_which_one_names_one_place_are_written_together() -> None:
    def written(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        y = x.clone()
        y[rows, columns] = 2.0
        return y

    masks = [[True, False, True], [False, False, True], [True, True, True], [False, True, False]]
    one, two, three, other = map(torch.tensor, masks)
    given = [(torch.randn(3, 3), *pair) for pair in ((one, one), (three, two), (other, three), (other, other & False))]
    export_and_compare(Calls(written), *given)


def test_masks_beside_whole_axes_and_indices() -> None:
    def written(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        y = x.clone()
        y[:, rows] = 2.0
        y[:, :, columns] = -1.0
        y[:, rows] += 1.0
        y[:, rows, 1] = 5.0
        return y

    rows, columns = torch.tensor([True, False, True, False]), torch.tensor([False, True, True])
    given = [(torch.randn(n, 4, 3), mask, columns) for n, mask in ((3, rows), (1, ~rows), (2, rows & False))]
    export_and_compare(Calls(written), *given, dynamic_shapes=(({0: "n"}, None, None),))


@pytest.mark.parametrize("opset", [13, 17, 20])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_bits_of_nothing_and_of_numbers_that_do_not_fit(dtype: torch.dtype, opset: int) -> None:
    def bits(x: Tensor) -> Any:
        return x ^ x.flip(1), x & -2, x | 300 if dtype == torch.int32 else x | -3, torch.bitwise_xor(-1, x)

    given = [(torch.randint(0, 200, (n, 4), dtype=dtype),) for n in (3, 0, 1)]
    export_and_compare(Calls(bits), *given, dynamic_shapes=(({0: "n"},),), opset_version=opset)


def test_complex_numbers_are_filled() -> None:
    def filled(x: Tensor) -> Tensor:
        y = torch.complex(x, x * 2)
        y[:, 0] = 0
        y[:, 1:].fill_(3.0)
        return torch.view_as_real(y)

    export_and_compare(Calls(filled), (torch.randn(3, 4),))


def test_diagonals_of_complex_numbers_are_written() -> None:
    def written(x: Tensor) -> Any:
        y, z = torch.complex(x, x * 2), torch.complex(x, -x)
        y.diagonal().mul_(2j)
        z.diagonal(1).copy_(x.diagonal(1))
        return torch.view_as_real(y), torch.view_as_real(torch.diagonal_scatter(z, x.diagonal(-1), -1))

    given = [(torch.randn(n, 4),) for n in (3, 1, 0)]
    export_and_compare(Calls(written), *given, dynamic_shapes=(({0: "n"},),))
    filled = Calls(lambda x: torch.view_as_real(torch.complex(x, x).fill_diagonal_(3 - 1j)))
    export_and_compare(filled, *given, dynamic_shapes=(({0: "n"},),))


def test_numbers_out_of_tensors_are_python_numbers() -> None:
    def summed(y: Tensor, x: Tensor) -> Tensor:
        return y * sum(x.flatten().tolist())

    export_and_compare(Calls(summed), (torch.ones(3), torch.randn(4)), (torch.ones(3), torch.randn(4)))


def test_no_axes_are_none_for_any() -> None:
    export_and_compare(Calls(lambda x: ((x > 0).any(()), (x > 0).all(()))), (torch.randn(3, 2),))


def test_fill_diagonal() -> None:
    def filled(x: Tensor, tall: Tensor, cube: Tensor) -> Any:
        x, tall, cube = x.clone(), tall.clone(), cube.clone()
        wrapped = tall.clone().fill_diagonal_(3.0, wrap=True)
        tall[1:].fill_diagonal_(2.0)
        return x.fill_diagonal_(7.0), tall, wrapped, cube.fill_diagonal_(0.0)

    export_and_compare(Calls(filled), (torch.randn(2, 4), torch.randn(7, 3), torch.randn(3, 3, 3)))


def test_a_diagonal_that_begins_anew_in_a_matrix_of_free_size() -> None:
    def filled(x: Tensor) -> Any:
        return x.clone().fill_diagonal_(3.0, wrap=True), x.long().fill_diagonal_(2, True)

    others = [(torch.randn(rows, columns),) for rows, columns in ((1, 3), (4, 3), (5, 3), (17, 4), (3, 9), (6, 1))]
    export_and_compare(Calls(filled), (torch.randn(7, 3),), *others, dynamic_shapes=(({0: "r", 1: "c"},),))


def test_fake_quantisation_to_four_bits() -> None:
    def quantised(x: Tensor) -> Any:
        scales, zeros = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.arange(4, dtype=torch.int32)
        return (
            torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15),
            torch.fake_quantize_per_tensor_affine(x, scales[0], zeros[1], -8, 7),
            torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, 0, 15),
        )

    export_and_compare(Calls(quantised), (torch.randn(5, 4),))


def test_functions_of_a_free_size_stay_functions_of_it() -> None:
    def scaled(x: Tensor) -> Any:
        n = x.shape[0]
        factor = math.log(n) + math.log2(n + 1) + math.exp(-n) + math.log(n + 3, 2) + math.sqrt(n)
        spaced = torch.linspace(-2, n, n)[:, None] * torch.logspace(-1, 1, n, base=2.0)
        return x * factor, spaced, torch.linspace(0, 1, 2 * n + 1, dtype=torch.float64)

    given = [(torch.randn(n, 4),) for n in (3, 1, 2, 9)]
    export_and_compare(Calls(scaled), *given, dynamic_shapes=(({0: "n"},),))


def test_pieces_of_a_free_axis() -> None:
    def pieces(x: Tensor) -> Any:
        y = torch.cat([x, x])
        return (*y.chunk(2), *x.tensor_split((1, 2)), *x.tensor_split(3))

    given = [(torch.randn(n, 2),) for n in (4, 0, 1, 2, 7)]
    export_and_compare(Calls(pieces), *given, dynamic_shapes=(({0: "n"},),), guards="allow")


def test_every_matrix_transposed() -> None:
    module = Calls(lambda x, s: (x.mT, x[0].mH, s.mT, torch.view_as_real(torch.complex(x, x + 1).mT)))
    export_and_compare(module, (torch.randn(2, 3, 4), torch.tensor(1.5)), dynamic_shapes=(({0: "n"}, None),))


@pytest.mark.parametrize(("kernel", "padding", "counts"), [(2560, 0, True), (7, 3, True), (7, 3, False)])
def test_a_mean_by_a_window_larger_than_the_image(kernel: int, padding: int, counts: bool) -> None:
    pool = torch.nn.AvgPool2d(kernel, padding=padding, ceil_mode=True, count_include_pad=counts)
    export_and_compare(pool, (torch.randn(1, 2, 2, 3),))


@pytest.mark.parametrize(
    ("kernel", "given"),
    [
        (2560, {}),
        ((40, 50), {"stride": 7, "padding": 3}),
        ((40, 50), {"padding": 3, "count_include_pad": False}),
        ((40, 50), {"stride": 30, "divisor_override": 3}),
    ],
)
def test_a_mean_by_a_window_larger_than_an_image_of_free_size(kernel: Any, given: dict[str, Any]) -> None:
    pool = torch.nn.AvgPool2d(kernel, ceil_mode=True, **given)
    sizes = ((1, 2, 41, 90), (3, 2, 60, 77), (2, 2, 44, 51))
    others = [(torch.randn(size),) for size in sizes]
    export_and_compare(
        pool, (torch.randn(2, 2, 45, 70),), *others, dynamic_shapes=({0: "batch", 2: "height", 3: "width"},)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_norms_that_give_their_statistics(dtype: torch.dtype) -> None:
    def both(x: Tensor, w: Tensor) -> Any:
        groups = torch.native_group_norm(x, w, w, x.shape[0], 4, x.shape[2], 2, 1e-5)
        return *groups, *torch.native_layer_norm(x, x.shape[1:], None, None, 1e-5)

    weight = torch.randn(4, dtype=dtype)
    given, *others = (
        (torch.randn(*sizes, dtype=dtype), weight) for sizes in ((2, 4, 9), (1, 4, 3), (3, 4, 0), (0, 4, 2))
    )
    tolerance = 1e-2 if dtype == torch.float16 else 1e-4
    for example in (given, others[1]):
        export_and_compare(Calls(both), example, tolerance=tolerance)
    free = (({0: "n", 2: "length"}, None),)
    export_and_compare(Calls(both), given, *others, dynamic_shapes=free, tolerance=tolerance)


def test_an_index_of_nothing_leaves_everything() -> None:
    def written(x: Tensor, at: Tensor, source: Tensor) -> Any:
        return (
            x.scatter(0, at, source),
            x.scatter(1, at, 2.0),
            x.scatter_reduce(0, at, source, "amax", include_self=False),
        )

    export_and_compare(Calls(written), (torch.randn(3, 4), torch.zeros(0, dtype=torch.int64), torch.zeros(0)))


def test_counts_of_nothing_are_integers() -> None:
    given = (torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    export_and_compare(Calls(lambda x, w: (torch.bincount(x, w), x.bincount(w, minlength=4))), given)


def test_a_number_among_no_elements() -> None:
    function = Calls(lambda x: (torch.isin(2, x), torch.isin(2, x, invert=True), torch.isin(x, 2)))
    given = [(torch.tensor(one, dtype=torch.int64),) for one in ([1, 2, 5], [], [4])]
    export_and_compare(function, *given, dynamic_shapes=(({0: "n"},),))


def test_medians_of_nothing() -> None:
    """Of integers NaN, cast to their dtype."""
    dtypes = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.float32)

    def medians(x: Tensor) -> list[Tensor]:
        return [kind(x.to(dtype)) for dtype in dtypes for kind in (torch.median, torch.nanmedian)]

    given = [(torch.arange(n),) for n in (4, 0, 1)]
    export_and_compare(Calls(medians), *given, dynamic_shapes=(({0: "n"},),))


def test_maxima_of_bags_without_a_position() -> None:
    bags = nn.EmbeddingBag(5, 3, mode="max")
    given = [(torch.arange(n), torch.tensor([0, min(n, 2), min(n, 2)])) for n in (4, 0, 1)]
    export_and_compare(bags, *given, dynamic_shapes={"input": {0: "n"}, "offsets": None})


def test_images_sampled_below_opset_16_where_there_are_none_or_points_are_no_numbers() -> None:
    module = Calls(lambda x, grid: functional.grid_sample(x, grid, padding_mode="border", align_corners=True))
    given = [(torch.randn(n, 2, 3, 4), torch.rand(n, 5, 2, 2) * 3 - 1.5) for n in (2, 0)]
    program = export_and_compare(module, *given, dynamic_shapes=(({0: "n"}, {0: "n"}),), opset_version=13)
    assert torch.isnan(program(given[0][0], given[0][1] * math.nan)[0]).all()


@pytest.mark.parametrize("opset", [17, 20])
def test_columns_of_one_image_and_of_none(opset: int) -> None:
    module = Calls(
        lambda x, y: (functional.fold(x, (4, 4), 2), functional.fold(y, (4, 3), (2, 2), padding=1, stride=2))
    )
    given = [(torch.randn(n, 12, 9), torch.randn(12, 6)) for n in (2, 0, 1)]
    export_and_compare(module, *given, dynamic_shapes=(({0: "n"}, None),), opset_version=opset)
