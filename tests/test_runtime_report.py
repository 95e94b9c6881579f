"""stages/runtime_report.py: a runtime's developers get a file of few nodes and a script that needs nothing of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

from batch_export.errors import UsageError
from batch_export.exporter.api import export
from batch_export.exporter.diagnostics.localise import Finding, localise_file
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell
from batch_export.runner.follow_up import _in_runtime
from batch_export.runtime.kinds import Runtime, Session
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.registered import RUNTIMES
from batch_export.runtime.session import open_session
from batch_export.spec import ExporterSpec, ModelSpec
from batch_export.stages.follow_up_request import Answer
from batch_export.stages.runtime_report import RuntimeReport

CPU = ProviderSpec("cpu", "onnxruntime", "CPUExecutionProvider", graph_optimization="disabled")
OTHER = ProviderSpec("other", "otherwise")

WRONG = """
import pathlib
import onnx
import onnxruntime

def version():
    return "0.1"

def outputs(path, settings, inputs):
    model = onnx.load(path)
    for node in model.graph.node:
        {change}
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, inputs)
"""
SIGMOID = 'node.op_type = "Sigmoid" if node.op_type == "Tanh" else node.op_type'
REFUSES = 'assert node.op_type != "Tanh", "no kernel for Tanh"'


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.tanh(self.first(x)) * 2))


def _opened(path: Path, change: str) -> Session:
    model = onnx.load(path)
    for node in model.graph.node:
        exec(change, {"node": node})
    other = path.with_name(f"other_{path.name}")
    onnx.save(model, str(other))
    return open_session(other, CPU)


def _report(
    change: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str = WRONG
) -> tuple[Finding, Answer]:
    """What is reported about a runtime that does to a Tanh what `change` says."""

    def opened(path: Path, provider: ProviderSpec, threads: int) -> Session:
        del provider, threads
        return _opened(path, change)

    if script:
        (tmp_path / "otherwise.py").write_text(script.format(change=change))
    written = str(tmp_path / "otherwise.py") if script else ""
    monkeypatch.setitem(
        RUNTIMES, "otherwise", Runtime("otherwise", "Otherwise", "onnx", ("onnx",), opened, script=written)
    )
    torch.manual_seed(0)
    program = export(Deep().eval(), (torch.randn(3, 4),))
    path = tmp_path / "deep.onnx"
    program.save(path)
    kwargs = {"x": torch.randn(3, 4)}
    finding = localise_file(path, program.exported_program, (), kwargs, provider=OTHER)
    assert finding is not None
    report = RuntimeReport("deep/static/opset20/other/core", OTHER, finding)
    return finding, report.written(path, program.exported_program, kwargs, tmp_path / "report")


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(folder / "again.py")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_wrong_numbers_become_one_node_whose_script_says_when_it_is_right(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    finding, answer = _report(SIGMOID, monkeypatch, tmp_path)
    assert finding.blame == "runtime"
    assert "other is alone" in finding.reason
    assert answer.found, answer.text
    folder = tmp_path / "report"
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "again.py",
        "case.json",
        "model.onnx",
        "runtime.py",
    }
    model = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["Tanh"]
    assert "batch_export" not in (folder / "again.py").read_text() + (folder / "runtime.py").read_text()
    wrong = _run(folder)
    assert wrong.returncode == 1
    assert "wrong: output tanh: 24 of 24 elements differ" in wrong.stdout
    (folder / "runtime.py").write_text(WRONG.format(change="pass"))
    right = _run(folder)
    assert (right.returncode, right.stdout) == (0, "Otherwise 0.1\nright: every output is as expected\n")


def test_a_refusal_is_kept_in_the_runtimes_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, answer = _report(REFUSES, monkeypatch, tmp_path)
    assert answer.found, answer.text
    assert answer.facts["nodes"] == ["Tanh node_tanh_Tanh"]
    assert "no kernel for Tanh" in (tmp_path / "report" / "README.md").read_text()


def test_a_script_that_does_not_fail_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, answer = _report(SIGMOID, monkeypatch, tmp_path, WRONG.replace("{change}", "pass"))
    assert not answer.found
    assert "does not fail there" in answer.text


def test_a_runtime_without_a_script_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Otherwise brings no script"):
        _report(SIGMOID, monkeypatch, tmp_path, "")


def _planned(provider: ProviderSpec) -> PlannedCell:
    model = ModelSpec("deep", "models.deep", {}, ())
    return PlannedCell(Cell("deep", "static", 20, provider.name, "core"), model, provider, ExporterSpec("core", "core"))


def test_the_cell_is_that_of_the_runtime_asked_for() -> None:
    cells = [_planned(CPU), _planned(OTHER)]
    assert _in_runtime(cells[0], "otherwise", cells) is cells[1]
    assert _in_runtime(cells[0], "other", cells) is cells[1]
    assert _in_runtime(cells[1], "onnxruntime", cells) is cells[0]
    with pytest.raises(UsageError, match=r"has no cell of deep/static/opset20/core in 'othr'.*did you mean 'other'"):
        _in_runtime(cells[0], "othr", cells)


def test_case_json_holds_the_values_exactly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _report(SIGMOID, monkeypatch, tmp_path)
    case = json.loads((tmp_path / "report" / "case.json").read_text())
    assert (case["inputs"][0]["shape"], case["outputs"][0]["dtype"]) == ([3, 8], "float32")
