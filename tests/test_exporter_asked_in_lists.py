"""Sizes that are asked for in comprehensions and generators: every answer is in the file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from exporting import Called, export_and_compare
from rarer import first
from torch.nn import functional as F  # noqa: N812

from batch_export.errors import DynamicShapeError, ExportWarning
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor
SHAPES = ({1: "n"},)
OTHERS = [(torch.randn(2, size),) for size in (1, 2, 3, 4, 5, 8, 9, 13, 20)]


def to_a_bucket(x: Tensor) -> Tensor:
    size = min([bucket for bucket in (4, 8, 16) if bucket >= x.shape[1]], default=32)
    return F.pad(x, (0, size - x.shape[1])).cumsum(1)


def windows_that_fit(x: Tensor) -> Tensor:
    windows = [1, *(window for window in (3, 5) if window <= x.shape[1])]
    return torch.stack([F.avg_pool1d(x, window, 1, window // 2) for window in windows]).mean(0)


@pytest.mark.parametrize("function", first(1, [to_a_bucket, windows_that_fit]))
def test_what_a_list_is_made_of_goes_by_the_size(function: Callable[[Tensor], Tensor]) -> None:
    export_and_compare(Called(function), (torch.randn(2, 6),), *OTHERS, dynamic_shapes=SHAPES)


def next_bucket(x: Tensor) -> Tensor:
    size = next(bucket for bucket in (4, 8, 32) if bucket >= x.shape[1])
    return F.pad(x, (0, size - x.shape[1]))


def test_an_answer_at_which_python_raises_an_error_is_left_out_and_told() -> None:
    with pytest.warns(ExportWarning, match=r"the model raises an error by `size = next\(.* and a file cannot"):
        export_and_compare(Called(next_bucket), (torch.randn(2, 6),), *OTHERS, dynamic_shapes=SHAPES)


def test_why_both_ways_are_not_one_file_is_said() -> None:
    def counted(x: Tensor) -> tuple[Tensor, int]:
        if x.shape[1] // 2 > 3:
            return x[:, x.shape[1] // 3 :].sum(1), 1
        return x.cumsum(1).sum(1), 2

    with pytest.raises(DynamicShapeError, match=r"both ways are not one file: `if x\.shape\[1\].*between 1 and 2"):
        export(Called(counted), (torch.randn(2, 6),), dynamic_shapes=SHAPES)
