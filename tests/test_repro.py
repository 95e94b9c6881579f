"""exporter/diagnostics/repro.py: failures shrink to their cause, and the script tells whether it still lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from batch_export.exporter.diagnostics.repro import Repro, Setting, write_repro

TESTS = Path(__file__).parent


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:3]:
            x = torch.relu(layer(x))
        x = torch.tanh(x)
        for layer in self.layers[3:]:
            x = torch.relu(layer(x) + 1)
        return x


class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.ops.aten._linalg_eigh(torch.exp(x))[0] + 1)


class Refuses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            raise RuntimeError("not while it is captured")
        return x


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Sequential(nn.ReLU(), Refuses())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    return subprocess.run(
        [sys.executable, str(folder / "repro.py")],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def made(folder: Path, module: nn.Module, setting: Setting, **options: Any) -> Repro:
    torch.manual_seed(0)
    repro = write_repro(folder, module.eval(), (torch.randn(3, 4),), None, setting, **options)
    assert repro is not None
    return repro


def test_a_mismatch_shrinks_to_the_node_and_its_script_tells_when_it_is_fixed(tmp_path: Path) -> None:
    repro = made(tmp_path / "bug", Deep(), Setting("deep", 20, "faulty_exporters.wrong_tanh"))
    assert repro.nodes == ("tanh",)
    assert repro.of == 16
    assert (repro.symptom["stage"], repro.symptom["error_class"]) == ("mismatch", "NumericMismatch")
    names = {path.name for path in repro.folder.iterdir()}
    assert names == {"repro.py", "case.json", "values.pt", "subject.pt2", "model.onnx"}
    values = torch.load(repro.folder / "values.pt", weights_only=False)
    assert torch.allclose(values["expected"][0], torch.tanh(values["args"][0]))
    alive = run(repro.folder)
    assert alive.returncode == 1, alive.stderr
    assert "mismatch NumericMismatch: output" in alive.stdout
    case = json.loads((repro.folder / "case.json").read_text())
    case["exporter"]["target"] = ""
    (repro.folder / "case.json").write_text(json.dumps(case))
    fixed = run(repro.folder)
    assert (fixed.returncode, fixed.stdout.strip()) == (0, "fixed: deep")


def test_what_does_not_fail_has_no_repro(tmp_path: Path) -> None:
    assert write_repro(tmp_path / "bug", Deep().eval(), (torch.randn(3, 4),), None, Setting("deep", 20)) is None
    assert not (tmp_path / "bug").exists()


def test_a_translation_error_shrinks_to_the_operator(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 4)
    repro = write_repro(tmp_path / "bug", Unsupported(), (x + x.T,), None, Setting("eigh", 20))
    assert repro is not None
    assert repro.symptom["stage"] == "translate"
    assert "eigh" in repro.symptom["operator"]
    assert len(repro.nodes) <= 2
    assert run(repro.folder).returncode == 1


def test_a_capture_error_shrinks_to_the_submodule(tmp_path: Path) -> None:
    repro = made(tmp_path / "bug", Outer(), Setting("outer", 20))
    assert repro.symptom["stage"] == "capture"
    assert repro.module == "second.1"
    assert (repro.folder / "subject.pt").is_file()


def test_a_crash_is_reduced_in_processes_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    wanted = {"stage": "crash", "error_class": "SIGSEGV", "operator": "", "message": ""}
    setting = Setting("deep", 20, "faulty_exporters.crashing", timeout_s=60.0)
    repro = made(tmp_path / "bug", Deep(), setting, wanted=wanted, near=("tanh",))
    assert repro.nodes == ("tanh",)
    done = run(repro.folder)
    assert done.returncode == 1
    assert "ended by signal 11" in done.stdout


def test_an_endless_export_is_a_repro_with_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one node that hangs is kept; every try has three seconds, and the script says so and ends."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TESTS.parent), str(TESTS)]))
    wanted = {"stage": "timeout", "error_class": "Timeout", "operator": "", "message": ""}
    torch.manual_seed(0)
    setting = Setting("hanging", 20, "faulty_exporters.endless", timeout_s=3.0)
    repro = write_repro(tmp_path / "bug", nn.Tanh().eval(), (torch.randn(3, 4),), None, setting, wanted=wanted)
    assert repro is not None
    assert (repro.symptom["stage"], repro.symptom["message"]) == ("timeout", "not done after 3 s")
    assert repro.nodes == ("tanh",)
    done = run(repro.folder)
    assert done.returncode == 1, done.stderr
    assert "timeout Timeout: not done after 3 s" in done.stdout


def test_a_file_that_does_not_load_shrinks_to_the_node(tmp_path: Path) -> None:
    repro = made(tmp_path / "bug", Deep(), Setting("deep", 20, "faulty_exporters.unknown_tanh"))
    assert repro.symptom["stage"] == "load"
    assert "NoSuchTanh" in repro.symptom["message"]
    assert repro.nodes == ("tanh",)
    assert (repro.folder / "model.onnx").is_file()
    alive = run(repro.folder)
    assert alive.returncode == 1, alive.stderr
    assert "load " in alive.stdout
