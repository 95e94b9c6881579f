"""A pass of a user's in an exporter's config: what it reads when it runs decides the file, and is looked at again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batch_export.cli import main as cli

PASS = """
import os
import onnx_ir as ir
from pathlib import Path

class Named(ir.passes.InPlacePass):
    def call(self, model):
        words = Path("settings.txt").read_text(), os.environ.get("HERMETIC_PASS", ""), os.path.exists("flag")
        model.graph.name = "_".join(map(str, words))
        return ir.passes.PassResult(model, True)
"""
BUILDER = "import torch\ndef build(): return torch.nn.Linear(8, 4)\n"
MODEL = "_target_: my_net.build\ninputs: {input: {dtype: float32, shape: [2, 8]}}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        "my_net.py": BUILDER,
        "my_pass.py": PASS,
        "settings.txt": "one",
        "conf/model/net.yaml": MODEL,
        "conf/exporter/named.yaml": "_target_: batch_export.exporter\npasses: [my_pass.Named]\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("HERMETIC_PASS", raising=False)
    return tmp_path


def swept() -> tuple[list[str], str]:
    """The steps that ran, and the digest of the file."""
    words = ["--config-dir", "conf", "matrix.models=[net]", "matrix.exporters=[named]", "matrix.opsets=[20]"]
    assert cli.main(["batch_export", *words, "matrix.dynamic=[static]", "runner.n_jobs=1"]) == 0
    (record,) = map(json.loads, Path("outputs/latest/records.jsonl").read_text().splitlines())
    ran = [action["mnemonic"] for action in record["actions"] if action["origin"] != "cached"]
    return ran, record["onnx"]["sha256"]


def test_what_a_pass_reads_when_it_runs_is_looked_at_again(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, first = swept()
    assert swept() == ([], first)
    files = {first}
    for change in (
        lambda: (project / "settings.txt").write_text("two"),
        lambda: monkeypatch.setenv("HERMETIC_PASS", "x"),
        lambda: (project / "flag").write_text(""),
    ):
        change()
        ran, file = swept()
        assert "Translate" in ran
        assert "Reference" not in ran
        assert file not in files
        assert swept() == ([], file)
        files.add(file)
