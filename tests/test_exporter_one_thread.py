"""Runs at other sizes take one thread where they are small, and as many as before where they are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from batch_export.exporter.capture.one_thread import one_thread_if_small
from batch_export.exporter.capture.trial import accepts


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Counting(torch.nn.Module):
    """Says how many threads it computes with."""

    def __init__(self, weights: int = 1) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(weights, device="meta"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.get_num_threads() != 1:
            raise RuntimeError("several threads")
        return x


def test_a_small_run_takes_one_thread() -> None:
    assert accepts(Counting(), (torch.ones(3),), {})
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("weights", "inputs"), [(2**24 + 1, 3), (1, 2**20 + 1)])
def test_a_large_run_takes_all(weights: int, inputs: int) -> None:
    with one_thread_if_small(Counting(weights), ([torch.empty(inputs, device="meta")], 3)):
        assert torch.get_num_threads() == 2


def test_threads_come_back_after_a_failure() -> None:
    with pytest.raises(ValueError, match="fails"), one_thread_if_small(Counting(), ()):
        raise ValueError("fails")
    assert torch.get_num_threads() == 2
