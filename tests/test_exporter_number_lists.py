"""Lists of numbers that a model's code makes of a free size, and takes for a tensor."""

from __future__ import annotations

import math

import pytest
import torch

from batch_export import export
from batch_export.errors import DynamicShapeError

pytestmark = pytest.mark.sampled


class Numbers(torch.nn.Module):
    """Lists by one step."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[1]
        half = int(n / 2)
        window = [0.5 * (1 - math.cos(2 * math.pi * i / n)) for i in range(n)]
        return (
            torch.tensor([1 / (i + 1) for i in range(n)]),
            torch.tensor([0.9**i for i in range(n)][::-1], dtype=torch.float64),
            torch.LongTensor([(i * 3 - 1) % n for i in range(n)]),
            torch.FloatTensor([(i + 1) ** -0.5 for i in range(n)]),
            torch.as_tensor([math.floor(i / 3) + round(i / 4) + abs(i - half) for i in range(n)]),
            torch.tensor([i // 2 > 1 for i in range(0, n, 2)]),
            torch.tensor([min(i, 3) + max(n - i, 2) for i in range(n, 0, -1)]),
            x.new_tensor([math.sqrt(i) + math.log(i + 1, 2) + math.pow(i, 1.5) for i in range(n)]),
            torch.tensor([n // i if i > 0 else 0 for i in range(n)]),
            torch.tensor(window) + len(window),
        )


class Matrices(torch.nn.Module):
    """Lists of lists: a mask, distances, the table of sines as it was published, and pairs."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.size(1)
        distances = [[min(max(j - i, -4), 4) + 4 for j in range(n)] for i in range(n)]
        angles = torch.tensor([[p / math.pow(10000, 2 * (j // 2) / 6) for j in range(6)] for p in range(n)])
        return (
            torch.tensor([[0.0 if j <= i else float("-inf") for j in range(n)] for i in range(n)]),
            torch.tensor(distances),
            torch.stack([angles[:, 0::2].sin(), angles[:, 1::2].cos()], -1).flatten(1),
            torch.tensor([[i, n - i] for i in range(n)]),
            torch.tensor([[[i + j + k for k in range(2)] for j in range(n)] for i in range(n)]),
        )


class Appended(torch.nn.Module):
    """A list that a loop fills, under the name that the tensor has."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weights = []
        for i in range(x.shape[1]):
            weights.append(0.5 ** (i / 2))
        weights = torch.tensor(weights, dtype=x.dtype)
        places = []
        for i in range(x.shape[1] - 1, -1, -1):
            places.append(i)
        order = torch.LongTensor(places)
        return x * weights, x[:, order], x[:, list(range(0, x.shape[1], 2))]


class Lengths(torch.nn.Module):
    """Sizes that a type takes in a list, as losses of sequences are given them."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b, n = x.shape
        return torch.IntTensor([n]), torch.LongTensor([n] * b), torch.FloatTensor([n, 0.5]), torch.LongTensor([1, 2])


class Ranges(torch.nn.Module):
    """Ranges as indices of what is read and written."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        n = x.shape[1]
        y = x.clone()
        y[:, range(0, n, 2)] = 0.5
        return x[:, range(n - 1, -1, -1)], x.t()[range(n)], x.expand(n, *x.shape)[range(n), :, range(n)], y


@pytest.mark.parametrize(
    "module", [Numbers(), Matrices(), Appended(), Lengths(), Ranges()], ids=lambda one: type(one).__name__
)
def test_numbers_by_a_free_size_are_those_of_every_size(module: torch.nn.Module) -> None:
    program = export(module, (torch.randn(2, 7),), dynamic_shapes=({0: "b", 1: "n"},))
    for n in (1, 2, 5, 16, 33):
        x = torch.randn(3, n)
        for found, expected in zip(program(x), module(x), strict=True):
            assert found.dtype == expected.dtype
            torch.testing.assert_close(found, expected)


class WithState(torch.nn.Module):
    """Each element is another call of what has a state."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        numbers = iter(range(100))
        return x * torch.tensor([float(next(numbers)) * (i + 1) for i in range(x.shape[1])])


class OfItself(torch.nn.Module):
    """Each element is made of the one before it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights: list[float] = []
        for i in range(x.shape[1]):
            weights.append(0.5 * sum(weights) + i)
        return x * torch.tensor(weights)


class LastStep(torch.nn.Module):
    """The step is read behind the loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = []
        for i in range(x.shape[1]):
            weights.append(i * 0.5)
        return x * torch.tensor(weights) + i


class OfTwoKinds(torch.nn.Module):
    """Of few elements the list has whole numbers only, and another dtype."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([1 if i < 3 else 0.5 for i in range(x.shape[1])])


class Doubled(torch.nn.Module):
    """Powers that Python has at any size, and no tensor of whole numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([2**i % 7 for i in range(x.shape[1])])


class Rounded(torch.nn.Module):
    """Logarithms next to whole numbers, which a runtime may have on their other side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tensor([int(math.log2(i + 1)) for i in range(x.shape[1])])


@pytest.mark.parametrize("module", [WithState(), OfItself(), LastStep(), OfTwoKinds(), Doubled(), Rounded()])
def test_a_list_that_is_made_otherwise_is_of_one_length_only(module: torch.nn.Module) -> None:
    x = torch.randn(2, 5)
    torch.testing.assert_close(export(module, (x,))(x)[0], module(x))
    with pytest.raises(DynamicShapeError):
        export(module, (x,), dynamic_shapes=({0: "b", 1: "n"},))


class Renamed(torch.nn.Module):
    """What a name stands for changes behind the list."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 2
        weights = [i * scale for i in range(x.shape[1])]
        scale = 5
        return x * torch.tensor(weights) * scale


def test_a_list_is_made_where_it_stands() -> None:
    x = torch.randn(2, 5)
    program = export(Renamed(), (x,), dynamic_shapes=({0: "b", 1: "n"},))
    torch.testing.assert_close(program(x)[0], Renamed()(x))


class Chunks(torch.nn.Module):
    """A list of pairs of places, over which another loop goes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chunks = []
        for start in range(0, x.shape[1], 8):
            chunks.append((start, min(start + 8, x.shape[1])))
        parts = []
        for start, end in chunks:
            parts.append(x[:, start:end].softmax(1))
        return torch.cat(parts, 1)


def test_a_list_of_pairs_of_places_leaves_an_axis_free_within_its_limit() -> None:
    module = Chunks()
    program = export(module, (torch.randn(2, 5),), dynamic_shapes=({0: "b", 1: "n"},), guards="allow")
    for n in (2, 3, 8):
        x = torch.randn(3, n)
        torch.testing.assert_close(program(x)[0], module(x))
