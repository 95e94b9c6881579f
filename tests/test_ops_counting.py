"""Operators that count, pick places or cut pieces: segments, histograms, lengths asked for, strided places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from exporting import export_and_compare
from torch.nn import functional as F  # noqa: N812

from batch_export.errors import OnnxExporterError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> object:
        return self.function(*given)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 1.5])
def test_segments_of_lengths_and_offsets(reduce: str, initial: float | None) -> None:
    data = torch.arange(1.0, 13.0).reshape(6, 2)

    def both(data: torch.Tensor, lengths: torch.Tensor, offsets: torch.Tensor, wide: torch.Tensor) -> object:
        return (
            torch.segment_reduce(data, reduce, lengths=lengths, initial=initial, unsafe=True),
            torch.segment_reduce(data, reduce, offsets=offsets, initial=initial, unsafe=True),
            torch.segment_reduce(data.T.contiguous(), reduce, lengths=wide, axis=1, initial=initial, unsafe=True),
        )

    lengths, offsets = torch.tensor([2, 0, 4]), torch.tensor([0, 1, 1, 6])
    export_and_compare(Call(both), (data, lengths, offsets, torch.tensor([[1, 5], [6, 0]])))


def test_histograms_with_edges() -> None:
    torch.manual_seed(0)
    x, weight, points = torch.randn(40), torch.rand(40), torch.randn(30, 2)

    def every(x: torch.Tensor, weight: torch.Tensor, points: torch.Tensor, edges: torch.Tensor) -> object:
        grid = torch.histogramdd(points, [3, 4], range=[-1.0, 1.0, -2.0, 2.0], density=True)
        return (
            tuple(torch.histogram(x, 5)),
            tuple(torch.histogram(x, 7, range=(-1.0, 2.0), weight=weight, density=True)),
            tuple(torch.histogram(x, edges, weight=weight)),
            grid[0],
            list(grid[1]),
            torch.histogramdd(points, [2, 3])[0],
        )

    export_and_compare(Call(every), (x, weight, points, torch.tensor([-3.0, -0.5, 0.0, 0.1, 2.0])))


def test_one_number_has_a_histogram_around_it() -> None:
    export_and_compare(Call(lambda x: tuple(torch.histogram(x, 4))), (torch.full((3,), 2.0),))


@pytest.mark.parametrize("size", [2, 9])
def test_places_in_a_length_asked_for(size: int) -> None:
    x = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, -1.0]])
    module = Call(lambda x: (torch.nonzero_static(x, size=size), torch.nonzero_static(x[0, 0], size=size)))
    export_and_compare(module, (x,))


def test_strided_places_are_written() -> None:
    x, source = torch.randn(4, 5), torch.randn(3, 2)
    export_and_compare(Call(lambda x, s: torch.as_strided_scatter(x, s, (3, 2), (5, 2), 1)), (x, source))
    with pytest.raises(OnnxExporterError, match="several elements to one place"):
        export(Call(lambda x, s: torch.as_strided_scatter(x, s, (3, 2), (0, 1), 0)), (x, source))
    with pytest.raises(OnnxExporterError, match="in its own order"):
        export(Call(lambda x, s: torch.as_strided_scatter(x.t(), s, (3, 2), (5, 2), 1)), (x, source))


def test_a_tensor_is_cut_to_another_shape_and_not_filled_with_memory() -> None:
    x = torch.randn(4, 5)
    export_and_compare(Call(lambda x: x.clone().resize_(3, 2) + 1.0), (x,))
    with pytest.raises(OnnxExporterError, match="more elements than there are"):
        export(Call(lambda x: x.clone().resize_(5, 6)), (x,))


@pytest.mark.parametrize("count", [1, 3])
def test_fractional_pooling_with_given_samples(count: int) -> None:
    torch.manual_seed(0)
    images, volumes = torch.randn(2, 3, 7, 9), torch.randn(1, 2, 6, 7, 8)

    def both(images: torch.Tensor, volumes: torch.Tensor, two: torch.Tensor, three: torch.Tensor) -> object:
        return (
            F.fractional_max_pool2d(images, (2, 3), (count, 4), return_indices=True, _random_samples=two),
            F.fractional_max_pool3d(volumes, 2, (count, 3, 4), return_indices=True, _random_samples=three),
        )

    export_and_compare(Call(both), (images, volumes, torch.rand(2, 3, 2), torch.rand(1, 2, 3)))


DATA: dict[str, Callable[..., Any]] = {
    "equal": lambda x, y: torch.where(torch.tensor(torch.equal(x, y)), x, x + 1.0),
    "close": lambda x, y: x * torch.allclose(x, y),
    "covariances": lambda x, y: torch.cov(x),
    "of one variable": lambda x, y: (torch.cov(x[0]), torch.corrcoef(x[0])),
    "weighted": lambda x, y: torch.cov(x, correction=0, aweights=y[0].abs()),
    "counted": lambda x, y: torch.cov(x, fweights=torch.tensor([1, 2, 3, 1])),
    "correlations": lambda x, y: torch.corrcoef(x),
    "a loss of variances": lambda x, y: F.gaussian_nll_loss(x, y, x.abs() + 0.1, full=True),
    "a start that is data": lambda x, y: torch.narrow(x, 1, y.argmax().clamp(max=2), 2),
    "from the end": lambda x, y: x.narrow(1, torch.tensor(-2), 2),
    "combinations": lambda x, y: (torch.combinations(x[0], 3), torch.combinations(x[0], with_replacement=True)),
}


@pytest.mark.parametrize("name", DATA)
def test_functions_that_look_at_data(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4)
    export_and_compare(Call(DATA[name]), (x, x + 1.0), (x, x.clone()))


def test_covariances_over_a_free_number_of_observations() -> None:
    module = Call(lambda x: (torch.cov(x), torch.corrcoef(x)))
    export_and_compare(module, (torch.randn(3, 6),), (torch.randn(3, 2),), dynamic_shapes=(({1: "n"},),))


def test_a_choice_by_equality_has_both_ways() -> None:
    module = Call(lambda x, y: x + 1.0 if torch.equal(x, y) else x)
    export_and_compare(module, (torch.ones(3), torch.zeros(3)), (torch.ones(3), torch.ones(3)))


@pytest.mark.parametrize("count", [5, 1, 0])
def test_how_often_numbers_occur(count: int) -> None:
    def both(x: torch.Tensor, other: torch.Tensor, weights: torch.Tensor) -> object:
        least = torch.bincount(x, minlength=other.shape[0]), torch.bincount(x)
        return *least, torch.bincount(x, weights, minlength=3), torch.bincount(x.int(), weights.long())

    shapes = {"x": {0: "n"}, "other": {0: "m"}, "weights": {0: "n"}}
    module = _Three(both)
    program = export(module, (torch.tensor([1, 4, 1]), torch.zeros(2), torch.ones(3)), dynamic_shapes=shapes)
    case = torch.randint(0, 9, (count,)), torch.zeros(12), torch.randn(count)
    for found, expected in zip(program(*case), module(*case), strict=True):
        torch.testing.assert_close(found, expected, check_dtype=count > 0)  # eager's zeros of nothing are int64


class _Three(Call):
    def forward(self, x: torch.Tensor, other: torch.Tensor, weights: torch.Tensor) -> Any:  # type: ignore[override]
        return self.function(x, other, weights)


class _Two(Call):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:  # type: ignore[override]
        return self.function(a, b)


@pytest.mark.parametrize("example", [(4, 5), (3, 5), (3, 4)])
def test_tensors_of_free_sizes_are_equal_where_their_sizes_are(example: tuple[int, int]) -> None:
    shapes = {"a": {0: "n", 1: "k"}, "b": {0: "m", 1: "l"}}
    program = export(_Two(torch.equal), (torch.ones(3, 5), torch.ones(example)), dynamic_shapes=shapes)
    for one, other in (((3, 5), (3, 5)), ((2, 5), (3, 5)), ((2, 5), (2, 4)), ((4, 4), (1, 4)), ((0, 3), (0, 3))):
        case = torch.ones(one), torch.ones(other)
        assert bool(program(*case)[0]) == torch.equal(*case)
    case = torch.ones(2, 2), torch.eye(2)
    assert not program(*case)[0]


@pytest.mark.parametrize("free", [False, True], ids=["fixed", "free"])
def test_one_hot_of_as_many_classes_as_the_data_have(free: bool) -> None:
    module = Call(lambda x: (F.one_hot(x), F.one_hot(x, num_classes=-1).float().sum(0)))
    others = [([1, 2, 1],), ([0, 0, 0],), ([5, 1, 0],), *([([4],), ([4, 1, 2, 3, 9],)] if free else [])]
    given = [(torch.tensor(one),) for (one,) in others]
    export_and_compare(module, (torch.tensor([0, 2, 1]),), *given, dynamic_shapes=(({0: "n"},),) if free else None)
