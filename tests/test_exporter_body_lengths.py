"""Lists of sizes within a branch: the full checker knows how many sizes there are."""

from __future__ import annotations

import pytest
import torch
from exporting import Called, export_and_compare
from torch.nn import functional

Tensor = torch.Tensor
TABLE = torch.randn(1, 3, 4, 4)


def _by_data(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return functional.interpolate(x, size=(x.shape[2] // 2, 7), mode="bilinear")
    return x[:, :, : x.shape[2] // 2, :1].expand(-1, -1, -1, 7) * 2


def _by_size(x: Tensor) -> Tensor:
    h, w = x.shape[2] // 2, x.shape[3]
    table = TABLE
    if (h, w) != (4, 4):
        table = functional.interpolate(TABLE, size=(h, w), mode="bicubic")
    return x[:, :, :h] + table


@pytest.mark.parametrize(("function", "width"), [(_by_data, 8), (_by_size, 4)])
def test_a_resize_by_computed_sizes_in_a_branch_passes_the_checker(function: object, width: int) -> None:
    x = torch.rand(1, 3, 8, width)
    others = [(one,) for one in (torch.rand(1, 3, 6, width), -torch.rand(1, 3, 9, width))]
    export_and_compare(Called(function), (x,), *others, dynamic_shapes=({2: "h"},))
