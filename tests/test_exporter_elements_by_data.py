"""Loops over a free size that read at a place that the data say: `points[far]`, where the last round gave `far`."""

from __future__ import annotations

import pytest
import torch
from exporting import export_and_compare
from rarer import first

from batch_export.errors import DynamicShapeError
from batch_export.exporter import export

pytestmark = pytest.mark.sampled

Tensor = torch.Tensor


class Farthest(torch.nn.Module):
    """Farthest points, one after the other, a fourth of all."""

    def forward(self, points: Tensor) -> Tensor:
        far = torch.zeros((), dtype=torch.long)
        distances = torch.full((points.shape[0],), 1e10)
        found = []
        for _ in range(points.shape[0] // 4):
            found.append(far)
            distances = torch.minimum(distances, ((points - points[far]) ** 2).sum(-1))
            far = distances.argmax()
        return torch.stack(found)


class Columns(torch.nn.Module):
    """Beside a slice."""

    def forward(self, points: Tensor) -> Tensor:
        at = points[0].argmax()
        found = []
        for i in range(points.shape[0]):
            column = points[:, at]
            found.append(column.mean())
            at = (points[i] * column[i]).argmax()
        return torch.stack(found)


@pytest.mark.parametrize("module", first(1, [Farthest(), Columns()]))
def test_what_a_round_reads_at_a_place_of_the_data(module: torch.nn.Module) -> None:
    others = [(torch.randn(size, 3),) for size in (4, 5, 9, 33)]
    export_and_compare(module, (torch.randn(12, 3),), *others, dynamic_shapes=({0: "n"},))


class Written(torch.nn.Module):
    """What is read is a part of the tensor, and is written to with it."""

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        points = points.clone()
        at = points[:, 0].argmax()
        found = []
        for _ in range(points.shape[0]):
            row = points[at]
            row += 1
            found.append(row.sum())
            at = points[:, 0].argmin()
        return torch.stack(found), points


class InPlace(torch.nn.Module):
    """A layer writes to what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        points = points.clone()
        at = points[:, 0].argmin()
        found = []
        for _ in range(points.shape[0]):
            found.append(self.relu(points[at]).sum())
            at = points[:, 0].argmin()
        return torch.stack(found), points


@pytest.mark.parametrize("module", [Written(), InPlace()])
def test_a_write_to_what_was_read_is_not_lost(module: torch.nn.Module) -> None:
    export_and_compare(module, (torch.randn(5, 3),), (torch.randn(5, 3),))
    with pytest.raises(DynamicShapeError):
        export(module, (torch.randn(5, 3),), dynamic_shapes=({0: "n"},))
