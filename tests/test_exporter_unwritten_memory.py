"""Trials at random integers where the model takes a permutation: what nobody wrote proves nothing against a program."""

from __future__ import annotations

import pytest
import torch

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export
from batch_export.exporter.capture.unwritten_memory import where_unwritten
from tests.exporting import export_and_compare


class Merged(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor, at: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        whole = torch.empty(a.shape[0] + b.shape[0], 4)
        whole[at] = a
        whole[there] = b
        return whole * 2 if whole.shape[0] > 7 else whole + 1


def given(a: int, b: int) -> tuple[torch.Tensor, ...]:
    order = torch.randperm(a + b, generator=torch.Generator().manual_seed(a))
    return torch.randn(a, 4), torch.randn(b, 4), order[:a].clone(), order[a:].clone()


def test_disjoint_places_are_merged_at_every_size() -> None:
    shapes = ({0: "n"}, {0: "k"}, {0: "n"}, {0: "k"})
    export_and_compare(Merged(), given(5, 4), given(1, 3), given(2, 1), given(9, 8), dynamic_shapes=shapes)


def test_what_is_written_still_counts() -> None:
    class Counted(torch.nn.Module):
        """Python counts with a size, so that a program holds for one alone."""

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            y = torch.empty_like(x)
            y[at] = x * float(str(x.shape[0]))
            return y

    with pytest.raises(DynamicShapeError):
        export(Counted(), (torch.randn(5, 2), torch.randperm(5)), dynamic_shapes=({0: "n"}, {0: "n"}))


def test_only_what_hangs_on_memory_is_left_out() -> None:
    def run() -> list[torch.Tensor]:
        rest = torch.empty(4)
        rest[:2] = 1.0
        return [rest, torch.ones(3)]

    found = where_unwritten(run(), run)
    assert found is not None
    assert [one.tolist() for one in found] == [[False, False, True, True], [False] * 3]
    assert where_unwritten([torch.ones(3)], lambda: [torch.ones(3)]) is None
