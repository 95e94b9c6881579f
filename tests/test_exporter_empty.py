"""A empty batch: files with a free batch axis give what eager gives for zero samples, shapes and NaN included."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from exporting import Called, export_and_compare
from torch import Tensor, nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from batch_export.exporter import export

pytestmark = pytest.mark.sampled

IMAGE = (3, 4, 8, 6)
FUNCTIONS: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "group_norm": (lambda x: functional.group_norm(x, 2, torch.ones(4), torch.zeros(4)), IMAGE),
    "batch_norm_without_running": (lambda x: functional.batch_norm(x, None, None, training=True), IMAGE),
    "unfold": (lambda x: functional.unfold(x, 2, padding=1), IMAGE),
    "pixel_shuffle": (lambda x: functional.pixel_shuffle(x, 2), IMAGE),
    "replicate": (lambda x: functional.pad(x, (1, 2, 2, 1), mode="replicate"), IMAGE),
    "adaptive_average": (lambda x: functional.adaptive_avg_pool2d(x, (4, 3)), IMAGE),
    "adaptive_maximum": (lambda x: functional.adaptive_max_pool2d(x, (3, 5)), IMAGE),
    "adaptive_maximum_of_all": (lambda x: functional.adaptive_max_pool2d(x, 1), IMAGE),
    "area": (lambda x: functional.interpolate(x, scale_factor=2, mode="area"), IMAGE),
    "antialiased": (lambda x: functional.interpolate(x, scale_factor=0.45, mode="bicubic", antialias=True), IMAGE),
    "flatten": (lambda x: (x.flatten(1), x.flatten(0, 1), x.flatten(1, 2), x.flatten(2), x.flatten()), IMAGE),
    "repeat_interleave": (lambda x: (x.repeat_interleave(2, 0), x.repeat_interleave(3, -1)), IMAGE),
    "roll": (lambda x: (x.roll(1, 0), x.roll((2, -1), (1, 3)), x.roll(5)), IMAGE),
    "mean": (lambda x: (x.mean(0), x.mean(), x.mean(-1), x.mean((1, 2), keepdim=True)), IMAGE),
    "any_all": (lambda x: ((x > 0).any(0), (x > 0).any(), (x > 0).all(0), (x > 0).any(-1)), IMAGE),
    "var": (lambda x: (x.var(0), x.std(-1), *torch.var_mean(x, 1)), IMAGE),
    "reductions_of_the_last": (
        lambda x: (x.sum(-1), x.amax(-1), x.amin((-2, -1)), x.prod(-1), x.argmax(-1), x.logsumexp(-1), x.max(-1)),
        IMAGE,
    ),
    "mask_of_scores": (
        lambda x: functional.scaled_dot_product_attention(
            x, x, x, attn_mask=torch.where(x @ x.mT > 0, 0.0, float("-inf"))
        ),
        (3, 4, 5),
    ),
    "isin": (lambda x: (torch.isin(x, torch.ones(3)), torch.isin(x[:, 0], x)), (3, 5)),
    "product_with_a_vector": (lambda x: (x @ torch.ones(5), torch.mv(x[:, 0], torch.ones(5))), (3, 4, 5)),
    "cross_entropy": (lambda x: functional.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.int64)), (3, 5)),
    "mse": (lambda x: functional.mse_loss(x, x + 1), (3, 5)),
}


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: x.mean(), 4),  # a sum by a number of elements, which is NaN where there is none
        (lambda x: (x.mean(0), (x * x).mean(0, keepdim=True)), 6),  # counted once
        (lambda x: x.mean((0, 1)), 5),
        (lambda x: x.mean(1), 1),
    ],
)
def test_a_mean_over_what_may_be_empty_is_few_nodes(function: Callable[[Tensor], Any], count: int) -> None:
    program = export(Calls(function), (torch.randn(3, 4, 2),), dynamic_shapes=({0: "batch"},))
    assert len(program.model.graph) == count
    for size in (0, 1, 5):
        x = torch.randn(size, 4, 2)
        expected = [one for one in pytree.tree_leaves(function(x)) if isinstance(one, Tensor)]
        for one, other in zip(program(x), expected, strict=True):
            torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_any_number_of_samples(name: str, count: int) -> None:
    function, shape = FUNCTIONS[name]
    torch.manual_seed(0)
    module = Calls(function).eval()
    program = export(module, (torch.randn(shape),), dynamic_shapes=({0: "batch"},))
    x = torch.randn(count, *shape[1:])
    expected = pytree.tree_leaves(module(x))
    actual = program(x)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("count", [0, 2])
def test_groups_of_images_of_free_size(count: int) -> None:
    module = nn.GroupNorm(2, 4).eval()
    program = export(module, (torch.randn(IMAGE),), dynamic_shapes=({0: "batch", 2: "height", 3: "width"},))
    x = torch.randn(count, 4, 7, 3)
    torch.testing.assert_close(torch.as_tensor(program(x)[0]), module(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_adaptive_averages_of_nothing_are_nan(dtype: torch.dtype) -> None:
    def function(x: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(x, (max(1, x.shape[2] // 2), max(1, x.shape[3] // 2)))

    axes = ({2: "height", 3: "width"},)
    program = export(Calls(function), (torch.randn(1, 2, 4, 6, dtype=dtype),), dynamic_shapes=axes)
    for height, width in ((0, 0), (1, 1), (3, 7)):
        x = torch.randn(1, 2, height, width, dtype=dtype)
        torch.testing.assert_close(torch.as_tensor(program(x)[0]), function(x), equal_nan=True)


def test_an_area_of_half_a_column_is_empty() -> None:
    module = Calls(lambda x: functional.interpolate(x, scale_factor=0.5, mode="area"))
    program = export(module, (torch.randn(IMAGE),), dynamic_shapes=({3: "width"},))
    for width in (1, 2, 7):
        x = torch.randn(*IMAGE[:3], width)
        torch.testing.assert_close(torch.as_tensor(program(x)[0]), module(x))


def test_an_operator_whose_result_is_empty_for_certain_is_a_constant() -> None:
    module = Calls(lambda x: functional.unfold(x[:0], 2))
    program = export(module, (torch.randn(IMAGE),))
    assert {node.op_type for node in program.model.graph} <= {"Identity"}
    assert torch.as_tensor(program(torch.randn(IMAGE))[0]).shape == (0, 16, 35)


@pytest.mark.parametrize("sizes", [(2, 16, 12), (1, 9, 31), (4, 7, 5), (3, 4, 3), (0, 8, 8)])
def test_adaptive_averages_of_images_of_free_size(sizes: tuple[int, int, int]) -> None:
    def function(x: Tensor) -> Any:
        pooled = [functional.adaptive_avg_pool2d(x, size) for size in ((7, 5), (1, 3), (None, 2))]
        return *pooled, functional.interpolate(x, scale_factor=0.5, mode="area")

    module = Calls(function)
    axes = ({0: "batch", 2: "height", 3: "width"},)
    program = export(module, (torch.randn(2, 3, 16, 12),), dynamic_shapes=axes)
    batch, height, width = sizes
    x = torch.randn(batch, 3, height, width)
    for actual, expected in zip(program(x), module(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(actual), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(0, 0), (0, 6), (3, 0), (2, 6)])
def test_what_is_left_of_an_unflattened_axis_is_computed_where_another_may_be_empty(size: tuple[int, int]) -> None:
    module = Calls(lambda x: (x.unflatten(-1, (2, -1)), x.unflatten(1, (-1, 1)), x.abs().unflatten(1, (2, -1, 1))))
    axes = ({0: "batch", 1: 2 * torch.export.Dim("half")},)
    program = export(module, (torch.randn(3, 4),), dynamic_shapes=axes)
    x = torch.randn(size)
    for actual, expected in zip(program(x), module(x), strict=True):
        torch.testing.assert_close(torch.as_tensor(actual), expected)


class Normed(nn.Module):
    """A layer, a norm by groups where there is a convolution, and a mean over all places."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first, self.norm = first, nn.GroupNorm(2, 4) if isinstance(first, nn.Conv2d) else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.first(x)).mean((2, 3))


@pytest.mark.parametrize(("first", "fewer"), [(nn.Conv2d(4, 4, 3, padding=1), True), (nn.Sigmoid(), False)])
def test_nothing_is_asked_of_axes_as_long_as_a_convolutions_output(first: nn.Module, fewer: bool) -> None:
    module = Normed(first).eval()
    axes = {0: "batch", 2: "height", 3: "width"}
    program = export(module, (torch.randn(2, 4, 5, 6),), dynamic_shapes=(axes,))
    kinds = {node.op_type for node in program.model.graph}
    assert kinds.isdisjoint({"Size", "Where"}) is fewer
    sizes = [(0, 5, 6), (1, 1, 1), (3, 2, 7)] + ([] if fewer else [(2, 0, 3), (0, 0, 0)])
    for batch, height, width in sizes:
        x = torch.randn(batch, 4, height, width)
        torch.testing.assert_close(program(x)[0], module(x), equal_nan=True, atol=1e-5, rtol=1e-5)
    if fewer:  # eager refuses what the file was not asked about, and so does the file
        with pytest.raises(RuntimeError):
            module(torch.randn(2, 4, 0, 6))
        with pytest.raises(Exception, match="Invalid input shape"):
            program(torch.randn(2, 4, 0, 6))


def shapes_of_pixels(x: Tensor) -> Any:
    return functional.pixel_shuffle(x, 2), functional.pixel_shuffle(x[None, None], 2)


IMAGES: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "instance_norm": (lambda x: functional.instance_norm(x, weight=torch.ones(4), bias=torch.zeros(4)), (2, 4, 3, 5)),
    "instance_norm_of_a_row": (lambda x: functional.instance_norm(x), (2, 4, 3)),
    "local_response_norm": (lambda x: functional.local_response_norm(x, 2), (2, 4, 3)),
    "local_response_norm_of_images": (lambda x: functional.local_response_norm(x, 5), (2, 4, 3, 5)),
    "pixel_shuffle": (shapes_of_pixels, (2, 4, 3, 5)),
}


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("count", [0, 2, 7])
def test_any_length_of_images(name: str, count: int) -> None:
    function, shape = IMAGES[name]
    program = export(Calls(function), (torch.randn(shape),), dynamic_shapes=({2: "height"},))
    x = torch.randn(*shape[:2], count, *shape[3:])
    for one, other in zip(program(x), pytree.tree_leaves(function(x)), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_any_number_of_channels(count: int) -> None:
    def pooled(x: Tensor) -> Tensor:
        return functional.local_response_norm(x, 3)

    program = export(Calls(pooled), (torch.randn(2, 4, 3),), dynamic_shapes=({1: "channels"},))
    x = torch.randn(2, count, 3)
    torch.testing.assert_close(torch.as_tensor(program(x)[0]), pooled(x))


def test_instances_of_any_number_of_channels_and_any_length() -> None:
    """onnxruntime's kernel reads the first element of a channel also where there is none."""
    axes = ({1: "channels", 2: "length"},)
    program = export(Calls(functional.instance_norm), (torch.randn(2, 4, 3),), dynamic_shapes=axes)
    for channels, length in ((4, 3), (6, 0), (1, 5)):
        x = torch.randn(2, channels, length)
        torch.testing.assert_close(program(x)[0], functional.instance_norm(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_normalisation_over_axes_of_free_size(dtype: torch.dtype) -> None:
    module = Calls(
        lambda x: (
            functional.layer_norm(x, x.shape[1:]),
            functional.layer_norm(x, x.shape[-1:], x[0, 0], x[0, -1]),
            functional.layer_norm(x[:, :0], (0, x.shape[2])),
            functional.layer_norm(x[..., :0], (0,)),
        )
    )
    program = export(module, (torch.randn(2, 3, 4).to(dtype),), dynamic_shapes=({2: "n"},))
    for count in (0, 1, 2, 5):
        x = torch.randn(2, 3, count).to(dtype)
        for actual, expected in zip(program(x), module(x), strict=True):
            torch.testing.assert_close(actual, expected, equal_nan=True)


def test_a_fixed_size_of_0_is_no_size_to_copy(tmp_path: Path) -> None:
    def function(x: Tensor) -> Any:
        found = torch.unique(x, return_inverse=True), torch.unique_consecutive(x, return_inverse=True)
        return found, x.clone().put_(x, x.flatten(), True)

    given = torch.zeros(5, 0, dtype=torch.int64)
    program = export(Calls(function), (given,))
    program.save(tmp_path / "model.onnx")
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)
    for found, expected in zip(program(given), pytree.tree_leaves(function(given)), strict=True):
        assert found.shape == expected.shape


def test_a_size_of_0_among_computed_sizes_is_no_size_to_copy() -> None:
    """`nonzero` of a scalar has no columns, and the number of its rows is computed."""
    program = export(Calls(lambda x: torch.kron(torch.nonzero(x), torch.nonzero(x))), (torch.tensor(0.3),))
    assert program(torch.tensor(0.3))[0].shape == (1, 0)
    assert program(torch.tensor(0.0))[0].shape == (0, 0)


def test_a_size_that_any_operator_computes_is_no_size_to_copy() -> None:
    """A root, rounded up, which no list of sizes' own arithmetic has, and the number that a choice by a size gives."""

    def function(x: Tensor) -> Any:
        long = x.shape[1]
        side = math.ceil(math.sqrt(long))
        square = functional.pad(x, (0, 0, 0, side * side - long)).mT.reshape(x.shape[0], 8, side, side)
        some = long - 1 if long > 3 else long // 2
        return square.sum(-1), x[:, :some].transpose(0, 1).reshape(some, x.shape[0], 2, 4)

    program = export(Calls(function), (torch.randn(2, 5, 8),), dynamic_shapes={"x": {0: "batch", 1: "long"}})
    for size in ((2, 0), (1, 1), (3, 9), (0, 5)):
        x = torch.randn(*size, 8)
        for found, expected in zip(program(x), function(x), strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_wide_unsigned_integers_are_sorted(dtype: torch.dtype) -> None:
    """onnxruntime has no TopK for them."""
    given = torch.tensor([5, 3, -1, 3]).to(dtype)  # the largest one for -1
    found = export(Calls(lambda x: torch.sort(x, stable=True)), (given,))(given)
    for one, expected in zip(found, torch.sort(given, stable=True), strict=True):
        assert one.dtype == expected.dtype
        assert one.tolist() == expected.tolist()


def test_values_alone_that_are_found_once_pass_the_checker_without_optimisation() -> None:
    given = torch.randint(0, 3, (4, 3, 3))
    program = export(Calls(torch.unique), (given,), optimize=False)
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert torch.equal(program(given)[0], torch.unique(given))


def _padded_and_cropped(x: torch.Tensor) -> Any:
    return functional.pad(x[None], (2, -2), "replicate"), functional.pad(x[None, None], (1, -1, -1, 1), "replicate")


def test_an_axis_that_is_shorter_than_what_is_taken_of_it_is_repeated() -> None:
    others = [(torch.randn(shape),) for shape in ((1, 5), (5, 1), (2, 3), (1, 1))]
    export_and_compare(Called(_padded_and_cropped), (torch.randn(4, 6),), *others, dynamic_shapes=({0: "n", 1: "m"},))


def test_nothing_is_normalised_by_a_native_operator() -> None:
    module = Called(lambda x: functional.rms_norm(x, x.shape[1:]))
    others = [(torch.randn(3, 1),), (torch.zeros(3, 0),)]
    shapes = ({0: "n", 1: "m"},)
    export_and_compare(module, (torch.randn(4, 6),), *others, dynamic_shapes=shapes, opset_version=23)


@pytest.mark.parametrize(("least", "operators"), [(1, 0), (0, 2)], ids=["declared", "free"])
def test_groups_of_what_is_never_empty_need_no_sizes(least: int, operators: int) -> None:
    norm = nn.GroupNorm(4, 8)
    free = ({axis: torch.export.Dim(f"d{axis}", min=least) for axis in (0, 2, 3)},)
    examples = [(torch.randn(*size),) for size in ((2, 8, 3, 4), (1, 8, 1, 1), (3, 8, 5, 2))]
    if not least:
        examples.append((torch.zeros(0, 8, 3, 4),))
    program = export_and_compare(norm, *examples, dynamic_shapes=free)
    assert len([node for node in program.model.graph if node.op_type in ("Div", "Mul")]) == operators + 1
