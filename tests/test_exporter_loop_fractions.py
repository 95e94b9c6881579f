"""Loops over a free size whose rounds compute with fractions of sizes that stand before the loop (`dt = 1.0 / n`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from exporting import assert_same
from torch import Tensor

from batch_export.errors import ExportWarning
from batch_export.exporter import export

pytestmark = pytest.mark.sampled


def steps(x: Tensor, t: Tensor) -> Tensor:
    n = t.shape[0]
    dt = 1.0 / n
    for i in range(n):
        x = x + dt * torch.tanh(x) * t[i]
    return x


def middle(x: Tensor, t: Tensor) -> Tensor:
    h = 1 / t.shape[0]
    for _ in range(t.shape[0]):
        slope = torch.sin(x)
        x = x + h * (slope + 2 * torch.sin(x + h / 2 * slope)) / 3
    return x


def listed(x: Tensor, t: Tensor) -> Tensor:
    weight, rows = t.shape[0] / 2, []
    for i in range(t.shape[0]):
        rows.append(x.mean(0) * t[i] * weight)
    return torch.stack(rows)


def limited(x: Tensor, t: Tensor) -> Tensor:
    highest = t.shape[0] / 4
    for i in range(t.shape[0]):
        x = x.clamp(max=highest) + t[i]
    return x


def mixed(x: Tensor, t: Tensor) -> Tensor:
    share = 1.0 / t.shape[0]
    for i in range(t.shape[0]):
        x = torch.lerp(x, x.roll(1, 0) * t[i], share)
        x = torch.add(x, torch.ones_like(x), alpha=share)
    return x


def with_step(x: Tensor, t: Tensor) -> Tensor:
    h = 1 / t.shape[0]
    for i in range(t.shape[0]):
        x = x * (1 - i * h) + t[i] * (i * h)
    return x


def of_whole_numbers(x: Tensor, t: Tensor) -> Tensor:
    h, total, kept = 1 / t.shape[0], torch.zeros_like(x), (x > 0).long()
    for i in range(t.shape[0]):
        total = total + kept * h * t[i]
    return total


def double(x: Tensor, t: Tensor) -> Tensor:
    x, h = x.double(), 1 / t.shape[0]
    for _ in range(t.shape[0]):
        x = x + h * x.cos()
    return x


def by_rows(x: Tensor, t: Tensor) -> Tensor:
    scale = t.shape[0] ** -0.5
    for row in t:
        x = x - (x * row * scale).tanh()
    return x


def asked(x: Tensor, t: Tensor) -> Tensor:
    h = 1 / t.shape[0]
    for i in range(t.shape[0]):
        if h > 0.3:
            x = x * 2
        x = x + t[i]
    return x


@pytest.mark.parametrize(
    "function",
    [steps, middle, listed, limited, mixed, with_step, of_whole_numbers, double, by_rows, asked],
    ids=lambda one: one.__name__,
)
def test_a_fraction_from_before_a_loop_is_that_of_every_size(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExportWarning)
        program = export(
            function, (torch.randn(3, 4), torch.randn(5)), dynamic_shapes=({0: "batch"}, {0: "n"}), opset_version=20
        )
    for batch in (1, 4):
        for n in (1, 2, 3, 7, 12):
            given = torch.randn(batch, 4), torch.randn(n)
            assert_same(program(*given), [function(*given)])
    program.release()
