"""Tensors that are cut to a length that data say, behind an `if`: the same slice at all data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from batch_export.errors import CaptureError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

SHAPES = ({0: "b", 1: "n"}, {0: "b"})


def by_a_number(x: Tensor, lengths: Tensor) -> Tensor:
    longest = int(lengths.max())
    if longest < x.size(1):
        x = x[:, :longest]
    return x * 2


def by_a_tensor(x: Tensor, lengths: Tensor) -> Tensor:
    longest = lengths.max()
    if x.shape[1] > longest:
        x = x[:, :longest, :]
    return x.cumsum(1)


def two_of_them(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    longest = lengths.max().item()
    mask = torch.arange(x.size(1))[None] < lengths[:, None]
    if longest != x.shape[1]:
        x = x[:, :longest]
        mask = mask[:, :longest]
    return x * mask[..., None], mask


def from_the_end(x: Tensor, lengths: Tensor) -> Tensor:
    """Below 0 a slice counts from the end, whether the `if` is there or not."""
    longest = (lengths - 2).max()
    if longest < x.size(1):
        x = x[:, :longest]
    return x * 2


def written_later(x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    longest, y = lengths.max(), x * 1
    if longest < y.size(1):
        z = y
        z = z[:, :longest]
    else:
        z = y
    z += 1
    return y, z


@pytest.mark.parametrize("function", [by_a_number, by_a_tensor, two_of_them, from_the_end])
def test_cuts_are_those_of_all_data(function: Callable[..., Any]) -> None:
    program = export(function, (torch.randn(2, 6, 4), torch.tensor([3, 5])), dynamic_shapes=SHAPES)
    for size in (1, 2, 5, 6, 9):
        for lengths in ([0, 1], [size, 1], [1, 2], [size + 2, 0]):
            given = torch.randn(2, size, 4), torch.tensor(lengths)
            expected = function(*given)
            for one, other in zip(
                expected if isinstance(expected, tuple) else (expected,), program(*given), strict=True
            ):
                torch.testing.assert_close(other, one)


def by_another_axis(x: Tensor, lengths: Tensor) -> Tensor:
    longest = lengths.max()
    if longest < x.size(0):
        x = x[:, :longest]
    return x * 2


def and_something_else(x: Tensor, lengths: Tensor) -> Tensor:
    longest = lengths.max()
    if longest < x.size(1):
        x = x[:, :longest]
        x = x + 1
    return x * 2


@pytest.mark.parametrize("function", [by_another_axis, and_something_else, written_later])
def test_others_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(CaptureError, match="data"):
        export(function, (torch.randn(2, 6, 4), torch.tensor([3, 5])), dynamic_shapes=SHAPES)
