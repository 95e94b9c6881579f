"""Unique values along an axis that is counted from the end: torch's own capture gives them two axes too many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.exporting import export_and_compare


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def _decoded(x: Tensor) -> Tensor:
    labels = torch.unique_consecutive(x, dim=-1)
    return labels[labels != 0]


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "consecutive": _decoded,
    "with runs and counts": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=-1),
    "all": lambda x: torch.unique(x, return_inverse=True, return_counts=True, dim=-1),
}


@pytest.mark.parametrize("name", FORMS)
def test_an_axis_counted_from_the_end(name: str) -> None:
    vectors = [(torch.tensor(values, dtype=torch.int64),) for values in ([1, 1, 0, 2, 2], [], [3])]
    export_and_compare(Calls(FORMS[name]), *vectors, dynamic_shapes=({0: "n"},))
    rows = torch.tensor([[1, 1, 0, 0], [2, 2, 2, 2], [3, 3, 3, 3]])
    export_and_compare(Calls(FORMS[name]), (rows,), (rows[:2, :1],), dynamic_shapes=({0: "m", 1: "n"},))
    export_and_compare(Calls(FORMS[name]), (rows,))
