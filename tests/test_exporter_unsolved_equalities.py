"""An equality of sizes that torch's solver has no answer to does not end a capture."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.strategies import NON_STRICT
from tests.exporting import export_and_compare

pytestmark = pytest.mark.sampled


class Folded(torch.nn.Module):
    """Pieces of an image that was made smaller three times, put together again: its sides have to be even."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = functional.max_pool2d(x, 3, 2, 1)
        pieces = functional.unfold(x, 2, stride=2) * 2
        return functional.fold(pieces, (x.shape[2], x.shape[3]), 2, stride=2)


def test_a_fold_behind_poolings_of_a_free_size() -> None:
    shapes = ({2: "h", 3: "w"},)
    image = torch.rand(1, 2, 64, 48)
    captured = capture(Folded(), (image,), dynamic_shapes=shapes)
    assert [attempt.strategy for attempt in captured.attempts] == [NON_STRICT]
    others = [(torch.rand(1, 2, height, width),) for height, width in ((96, 64), (57, 32), (128, 80))]
    export_and_compare(Folded(), (image,), *others, dynamic_shapes=shapes)


class Placed(torch.nn.Module):
    """Parts of sounds, of which as many are asked for as there are marks."""

    def __init__(self) -> None:
        super().__init__()
        self.halved = torch.nn.Conv1d(2, 2, 3, 2, 1)

    def forward(self, x: torch.Tensor, marks: torch.Tensor, sounds: torch.Tensor) -> torch.Tensor:
        parts = self.halved(sounds).transpose(1, 2).reshape(-1, 4)
        places = (marks == 3)[..., None].expand_as(x)
        torch._check(x[places].numel() == parts.numel())
        return x.masked_scatter(places, parts)


def test_a_number_of_the_data_that_is_a_multiple_of_a_size() -> None:
    def inputs(batch: int, length: int, sounds: int) -> tuple[torch.Tensor, ...]:
        marks = torch.zeros(batch * length, dtype=torch.int64)
        marks[-2 * sounds :] = 3
        return torch.randn(batch, length, 4), marks.view(batch, length), torch.randn(sounds, 2, 8)

    shapes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"}, {0: "sounds"})
    export_and_compare(Placed(), inputs(2, 4, 2), inputs(3, 5, 4), inputs(1, 9, 1), dynamic_shapes=shapes)


class Bags(torch.nn.Module):
    """Offsets have to begin with 0, which numbers made up at random do not."""

    def forward(self, table: torch.Tensor, x: torch.Tensor, starts: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
        return functional.embedding_bag(x, table, starts, mode="sum", per_sample_weights=share)


def test_axes_of_unfit_numbers_that_the_model_makes_equal_are_one() -> None:
    def given(count: int, *starts: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(7, 3), torch.randint(7, (count,)), torch.tensor(starts), torch.randn(count)

    shapes = ({}, {0: "n"}, {0: "bags"}, {0: "shares"})
    with pytest.warns(UserWarning, match="the model makes the axes .* equal"):
        export_and_compare(Bags(), given(6, 0, 2, 5), given(4, 0, 1), dynamic_shapes=shapes)
