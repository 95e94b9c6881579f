"""One part of a tensor along a free axis (`x.unbind(0)[0]`, `x.split(3)[-1]`) is a slice at every size."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export
from tests.exporting import assert_same, eager

pytestmark = pytest.mark.sampled


class _Parts(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pieces = torch.split(x, 3, dim=1)
        slices = x.unbind(1)
        joined = torch.stack(torch.unbind(x, dim=-2)) * 2
        return x.split(3, 1)[0] * 2, pieces[1] + 1, pieces[-1] * 3, pieces[-2] * 4, slices[0] + slices[-1], joined


class _All(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([piece.sum() * (place + 1) for place, piece in enumerate(x.split(3))])


def test_one_part_is_a_slice_at_every_size() -> None:
    module = _Parts()
    program = export(module, (torch.randn(2, 9, 4),), dynamic_shapes=({0: "batch", 1: "seq"},))

    for sizes in ((2, 9), (1, 4), (3, 5), (2, 6), (2, 7), (1, 30)):
        x = torch.randn(*sizes, 4)
        assert_same(program(x), eager(module, (x,)))


def test_all_parts_are_as_many_as_in_the_example() -> None:
    with pytest.raises(DynamicShapeError, match="batch"):
        export(_All(), (torch.randn(9, 4),), dynamic_shapes=({0: "batch"},))


def _unpacked(x: torch.Tensor) -> torch.Tensor:
    first, second = x[:, :2].unbind(1)
    return first - second


def _last_ones(x: torch.Tensor) -> torch.Tensor:
    first, *others = x[:, -3:].unbind(1)
    return first * 2 + others[-1] - others[0]


def _stacked(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([row.cumsum(0) for row in x[:2]])


@pytest.mark.parametrize(
    ("function", "limit", "sizes"),
    [
        (_unpacked, "none", ((3, 6), (4, 9), (1, 2), (2, 3))),
        (_last_ones, "n >= 3", ((3, 6), (4, 9), (1, 3), (2, 4))),
        (_stacked, "b >= 2", ((3, 6), (2, 1), (2, 9), (7, 3))),
        (lambda x: sum(row.sum() * 2 for row in x[1:3]), "b >= 3", ((4, 6), (3, 2), (9, 1))),
    ],
)
def test_slices_of_a_part_of_known_length_are_taken_one_by_one(
    function: Callable[[torch.Tensor], torch.Tensor], limit: str, sizes: tuple[tuple[int, int], ...]
) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*the file holds only while.*", ExportWarning)
        warnings.filterwarnings("ignore", f".*the file holds only while `{limit}`.*", ExportWarning)
        program = export(function, (torch.randn(sizes[0]),), dynamic_shapes=({0: "b", 1: "n"},))
    for size in sizes:
        x = torch.randn(size)
        assert_same(program(x), [torch.as_tensor(function(x))])


def test_slices_of_a_part_of_any_length_are_as_many_as_in_the_example() -> None:
    with pytest.raises(DynamicShapeError, match="holds only while"):
        export(
            lambda x: sum(column * 2 for column in x[:, :-2].unbind(1)),
            (torch.randn(3, 6),),
            dynamic_shapes=({0: "b", 1: "n"},),
        )
