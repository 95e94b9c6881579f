"""Sizes at which torch takes a side, and at which the file was seen to be right: no limit is told of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import ONNXProgram, export
from tests.exporting import assert_same, eager

pytestmark = pytest.mark.sampled

ROWS = ({0: "b", 1: "n"},)
NAN = "ignore:.*degrees of freedom.*:UserWarning"


class Function(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def exported(function: Callable[..., Any], example: tuple[int, ...], shapes: Any) -> ONNXProgram:
    """The program, of which no warning tells anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        return export(Function(function), (torch.randn(example),), dynamic_shapes=shapes)


def assert_right(program: ONNXProgram, function: Callable[..., Any], sizes: Iterable[tuple[int, ...]]) -> None:
    for size in sizes:
        x = torch.randn(size)
        assert_same(program(x), eager(Function(function), (x,)))
    program.release()


@pytest.mark.filterwarnings(NAN)
@pytest.mark.parametrize(
    "deviating",
    [
        lambda x: x @ x.mT + x.std(1).sum(),
        lambda x: (x.std(1), x - x[:, :1]),
        lambda x: functional.conv1d(x.mT, torch.ones(2, 2, 3), padding=1).mT.contiguous() * x.var(1, keepdim=True),
        lambda x: functional.scaled_dot_product_attention(x, x, x) / x.std(1, keepdim=True),
        lambda x: (*torch.std_mean(x - x[:, :1], 1), x.var((0, 1))),
    ],
)
def test_a_deviation_of_one_element_is_no_number_in_the_file_either(deviating: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*n != 0.*", ExportWarning)
        program = export(Function(deviating), (torch.randn(3, 4, 2),), dynamic_shapes=ROWS)
    assert_right(program, deviating, [(3, 4, 2), (5, 7, 2), (2, 1, 2), (1, 1, 2), (1, 5, 2), (2, 2, 2)])


@pytest.mark.filterwarnings(NAN)
def test_a_deviation_of_one_element_of_an_image() -> None:
    def deviating(x: Tensor) -> Any:
        return x.flatten(2).transpose(1, 2) @ x.flatten(2), x.std((2, 3))

    program = exported(deviating, (2, 3, 4, 5), ({0: "b", 2: "h", 3: "w"},))
    assert_right(program, deviating, [(2, 3, 4, 5), (1, 3, 1, 1), (3, 3, 1, 4), (2, 3, 6, 1)])


@pytest.mark.ops
def test_what_has_no_finite_number_for_some_inputs_only_proves_nothing() -> None:
    def overflowing(x: Tensor) -> Tensor:
        large = ((x.abs() + 1e30) * (1e30 if x.shape[1] < 9 else 2e30)).min() + x @ x.mT
        return large if x.shape[1] < 9 else large.double()

    def of_negatives(x: Tensor) -> Tensor:
        return x.sqrt().sum() if x.shape[1] < 9 else x.sqrt().prod().double()

    with pytest.raises(DynamicShapeError, match="n < 9"):
        export(Function(overflowing), (torch.rand(3, 4, 2),), dynamic_shapes=ROWS)
    with pytest.raises(DynamicShapeError, match="n < 9"):
        export(Function(of_negatives), (torch.rand(3, 4, 2) - 1e-3,), dynamic_shapes=ROWS)


def test_covariances_of_one_variable_are_no_matrix() -> None:
    with pytest.raises(DynamicShapeError, match="n != 1"):
        export(Function(lambda x: torch.cov(x.t())), (torch.randn(8, 3),), dynamic_shapes=ROWS)
    for function in (lambda x: torch.cov(x.t()), lambda x: torch.corrcoef(x.t())):
        program = exported(function, (8, 3), ({0: "b", 1: Dim("n", min=2)},))
        assert_right(program, function, [(8, 3), (5, 7), (3, 2)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[:, :1] * x,
        lambda x: x[:, :1] * x + x.mean(0) * x[:, -1:],
        lambda x: x - x[:, :1],
        lambda x: x + x[:1].expand(x.shape),
        lambda x: torch.cat([x[:, :1], x[:, :-1]], 1) - x,
        lambda x: torch.atan2(x[:, :1], x) + torch.lerp(x[:, :1], x, 0.3) + x.masked_fill(x[:1] > 0, -1),
        lambda x: x.double() - x[:, :1].double() * x[:1].contiguous(),
        lambda x: x.roll(1, 1) - x[:, :1].expand_as(x),
        lambda x: x.clone().add_(x[:, :1]).mul_(x[:1].exp()),
        lambda x: (x - x[:1]).sum(1) + functional.gelu(x / x[:, -1:].abs().clamp_min(1e-3)).sum(1),
    ],
)
def test_one_row_or_column_beside_all_of_them(function: Callable[..., Any]) -> None:
    sizes = [(3, 4), (5, 7), (2, 1), (1, 4), (1, 1), (3, 0), (0, 4), (1, 0), (0, 0), (0, 1)]
    some = [one for one in sizes if all(one) or function(torch.ones(one)).isfinite().all()]
    assert_right(exported(function, (3, 4), ROWS), function, some)


def test_a_size_that_is_not_as_shown_matters_where_an_operator_goes_by_it() -> None:
    def squeezed(x: Tensor) -> Any:
        return x - x[:, :1], x[:, :1].squeeze(1)

    with pytest.warns(ExportWarning, match="`n != 0`"):
        program = export(Function(squeezed), (torch.randn(3, 4),), dynamic_shapes=ROWS)
    assert_right(program, squeezed, [(3, 4), (2, 1), (1, 1), (0, 3)])


def test_what_is_not_as_shown_has_a_size_of_its_own_in_the_file() -> None:
    program = exported(lambda x: x[:, :1] * x, (3, 4), ROWS)
    (cut,) = [node.outputs[0] for node in program.model.graph if node.op_type == "Slice"]
    assert cut.shape is not None
    assert not isinstance(cut.shape[1], int)
    assert program.model.graph.outputs[0].shape == ("b", "n")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.split(x, (x.shape[1] + 1) // 2, dim=1)[0],
        lambda x: torch.cat([piece.flip(-1) for piece in x.chunk(2, 1)], 1),
        lambda x: sum(piece.sum(1) for piece in x.chunk(2, 1)),
        lambda x: x.chunk(2, dim=-1)[0] * 2,
    ],
)
def test_pieces_that_are_not_there_are_empty(function: Callable[..., Any]) -> None:
    sizes = [(3, 4), (2, 1), (1, 1), (3, 0), (0, 3), (1, 5), (4, 2), (2, 9)]
    assert_right(exported(function, (3, 4), ROWS), function, sizes)


def test_pieces_of_which_a_model_has_fewer_elsewhere() -> None:
    def joined(x: Tensor) -> Tensor:
        return torch.cat([piece.flip(-1) for piece in x.chunk(3, 1)], 1)

    def stacked(x: Tensor) -> Tensor:
        return torch.stack([piece.sum(-1) for piece in x.chunk(3, 1)], 1)

    with pytest.warns(ExportWarning, match="`n >= 2`"):
        program = export(Function(joined), (torch.randn(3, 9),), dynamic_shapes=ROWS)
    assert_right(program, joined, [(3, 9), (2, 4), (1, 2), (2, 3), (5, 7), (1, 20)])
    with pytest.raises(DynamicShapeError, match="holds only while"):
        export(Function(stacked), (torch.randn(3, 9),), dynamic_shapes=ROWS)


def windows(x: Tensor) -> Tensor:
    """Parts of an image as transformers over windows take them."""
    batch, height, width, channels = x.shape
    parts = x.view(batch, height // 4, 4, width // 4, 4, channels)
    return parts.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, 4, channels)


@pytest.mark.parametrize(
    ("function", "example", "shapes", "sizes"),
    [
        (
            lambda x: x.unflatten(1, (-1, 2)).transpose(1, 2).flatten(0, 1),
            (2, 6, 3),
            ({1: 2 * Dim("t")},),
            [(2, 2, 3), (2, 4, 3), (2, 10, 3)],
        ),
        (
            windows,
            (2, 8, 12, 3),
            ({0: "b", 1: 4 * Dim("h"), 2: 4 * Dim("w")},),
            [(1, 4, 4, 3), (3, 4, 12, 3), (2, 16, 4, 3), (0, 8, 4, 3)],
        ),
        (
            windows,
            (2, 8, 12, 3),
            ({0: "b", 1: 4 * Dim("h", min=2), 2: 4 * Dim("w", min=2)},),
            [(1, 8, 8, 3), (0, 8, 8, 3), (3, 12, 16, 3)],
        ),
    ],
)
def test_multiples_of_a_name_are_tried_like_names(
    function: Callable[..., Any], example: tuple[int, ...], shapes: Any, sizes: list[tuple[int, ...]]
) -> None:
    assert_right(exported(function, example, shapes), function, [example, *sizes])


def test_pixels_unshuffled_of_multiples_of_a_name() -> None:
    def unshuffled(x: Tensor) -> Tensor:
        return functional.pixel_unshuffle(x, 2)

    shapes = ({0: "b", 2: 2 * Dim("h"), 3: 2 * Dim("w")},)
    with pytest.warns(ExportWarning, match="`b != 0 and [hw] != 0 and [hw] != 0`"):  # torch gives an image as it is
        program = export(Function(unshuffled), (torch.randn(2, 3, 8, 12),), dynamic_shapes=shapes)
    assert_right(program, unshuffled, [(2, 3, 8, 12), (1, 3, 2, 2), (3, 3, 4, 2), (1, 3, 2, 10)])


def test_a_limit_of_multiples_of_a_name_is_refused() -> None:
    def deciding(x: Tensor) -> Tensor:
        return x * 2 if x.shape[1] < 7 else x.double()

    with pytest.raises(DynamicShapeError, match=r"2\*t < 7"):
        export(Function(deciding), (torch.randn(2, 6),), dynamic_shapes=({1: 2 * Dim("t")},))
