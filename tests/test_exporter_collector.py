"""Python's collector while a model is exported: young garbage only, and afterwards as before."""

from __future__ import annotations

import gc

import pytest
import torch

from batch_export.errors import OnnxExporterError
from batch_export.exporter import export
from batch_export.exporter.graph.collector import young_only

FOUND: list[tuple[int, int, int]] = []


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        FOUND.append(gc.get_threshold())
        return x + 1


def test_an_export_leaves_the_collector_as_it_was() -> None:
    before = gc.get_threshold()
    export(Model().eval(), (torch.ones(2),))
    assert FOUND[-1][:2] == before[:2]
    assert FOUND[-1][2] > 1000 * before[2]
    assert gc.get_threshold() == before
    with pytest.raises(OnnxExporterError):
        export(Model().eval(), (torch.ones(2),), opset_version=1)
    assert gc.get_threshold() == before


def test_within_another_it_changes_nothing() -> None:
    before = gc.get_threshold()
    with young_only():
        within = gc.get_threshold()
        with young_only():
            assert gc.get_threshold() == within
        assert gc.get_threshold() == within
    assert gc.get_threshold() == before
