"""Masks of bytes choose elements in the file as they do in eager, which takes them for truth values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.exporting import export_and_compare

MASKED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "rows": lambda x, mask: x[mask],
    "columns": lambda x, mask: x.t()[:, mask],
    "elements": lambda x, mask: x[mask.unsqueeze(1).expand(3, 4)],
    "either of two": lambda x, mask: torch.where(mask.unsqueeze(1), x, -x),
    "either of two, as a method": lambda x, mask: x.where(mask.unsqueeze(1), x + 1),
    "a mask of the model": lambda x, mask: x[torch.tensor([0, 2, 1], dtype=torch.uint8)] + mask[0],
}


class Masked(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.function(x, mask)


@pytest.mark.filterwarnings("ignore:.*uint8.*")
@pytest.mark.parametrize("name", MASKED)
def test_masks_of_bytes_are_truth_values(name: str) -> None:
    masks = [torch.tensor(mask, dtype=torch.uint8) for mask in ([0, 1, 2], [0, 0, 0], [255, 1, 0])]
    first, *others = [(torch.randn(3, 4), mask) for mask in masks]
    export_and_compare(Masked(MASKED[name]), first, *others)
