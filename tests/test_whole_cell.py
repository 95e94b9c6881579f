"""stages/whole_cell.py: a cell of which no part fails in the same way is its own repro."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from sweeping import CORE, CPU
from torch import nn

from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Record
from batch_export.spec import AxisSpec, ExporterSpec, InputSpec, ModelSpec
from batch_export.stages.follow_up_request import Request
from batch_export.stages.whole_cell_repro import WholeCell

TESTS = Path(__file__).parent
MORE = ExporterSpec("one_more", "faulty_exporters.one_more")


class Leaves(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        os._exit(5)


class Hangs(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            time.sleep(3600)
        return x + 1


class Plain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def whole(folder: Path, name: str, exporter: ExporterSpec, stage: str, error_class: str) -> WholeCell:
    model = ModelSpec(
        name.lower(),
        f"test_whole_cell.{name}",
        {},
        (InputSpec(("x",), "float32", ("batch", 4)),),
        (AxisSpec("batch", 2, (1,)),),
    )
    cell = Cell(model.name, "full", 20, "cpu", exporter.name)
    record = Record(cell, "fail", stage, error_class)
    planned = PlannedCell(cell, model, CPU, exporter)
    request = Request("repro", planned, record, {"batch": 2}, "", "", str(folder / "bug"), timeout_s=60.0)
    if stage == "timeout":
        request = replace(request, timeout_s=4.0)
    return WholeCell(request, folder)


@pytest.mark.parametrize(
    ("name", "exporter", "stage", "error_class", "message"),
    [
        ("Plain", MORE, "check", "ExtraOutput", "the file has an output 'more' that was not asked for"),
        pytest.param(
            *("Leaves", CORE, "crash", "ProcessExit", "the process ended itself with exit code 5"),
            marks=pytest.mark.ops,
        ),
        pytest.param("Hangs", CORE, "timeout", "Timeout", "not done after 4 s", marks=pytest.mark.ops),
    ],
)
def test_the_script_of_a_whole_cell_shows_how_it_fails(
    tmp_path: Path, name: str, exporter: ExporterSpec, stage: str, error_class: str, message: str
) -> None:
    repro = whole(tmp_path, name, exporter, stage, error_class).written()
    assert repro is not None
    assert {path.name for path in repro.folder.iterdir()} == {"repro.py", "case.json"}
    done = subprocess.run(
        [sys.executable, str(repro.folder / "repro.py")], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.strip() == f"{stage} {error_class}: {message}"


def test_a_cell_that_passes_or_fails_otherwise_has_no_repro(tmp_path: Path) -> None:
    assert whole(tmp_path, "Plain", CORE, "check", "ExtraOutput").written() is None
    assert whole(tmp_path, "Plain", MORE, "check", "MissingOutput").written() is None
    assert not (tmp_path / "bug").exists()
