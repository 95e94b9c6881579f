"""One part of a tensor along a free axis (`x.unbind(0)[0]`, `x.split(3)[-1]`) is a slice at every size."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export
from tests.exporting import assert_same, eager


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
