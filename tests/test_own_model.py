"""`new` and `try`: a model of one's own from words, with no file written by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from batch_export.cli.main import main
from batch_export.cli.model_words import config_of, yaml_of
from batch_export.config.model import model_spec
from batch_export.errors import UsageError
from batch_export.report.run_folder import read_records
from batch_export.report.runs import resolve_run

MODULE = """
import torch


class Two(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(width, 3)

    def forward(self, image, scale):
        return self.inner(image) * scale


def two(width):
    return Two(width)
"""
INPUTS = ["image=float32[batch,n=9,8]", "scale=float32[batch, 1, 1]"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder with one importable module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "of_mine.py").write_text(MODULE)


def test_words_become_a_config_that_a_sweep_reads() -> None:
    config = config_of("of_mine:two", INPUTS, ["width=8", "words=[a, b]"])
    assert config["_target_"] == "of_mine.two"
    assert (config["width"], config["words"]) == (8, ["a", "b"])
    assert config["inputs"]["image"] == {"dtype": "float32", "shape": ["batch", "n", 8]}
    assert config["axes"] == {
        "batch": {"example": 2, "check": [1, 4]},
        "n": {"example": 9, "check": [4, 14]},
    }
    text = yaml_of("two", config)
    assert yaml.safe_load(text) == config
    assert "  n: {example: 9, check: [4, 14]}" in text
    assert model_spec("two", yaml.safe_load(text)).target == "of_mine.two"


def test_a_fixed_model_has_no_axes() -> None:
    assert "axes" not in config_of("a.b", ["x=int64[2,3]"], [])
    assert config_of("a.b", ["x=bool[]"], [])["inputs"]["x"]["shape"] == []


@pytest.mark.parametrize(
    ("inputs", "arguments", "said"),
    [
        ([], [], "No input is described. Next step: --input"),
        (["x"], [], "--input 'x' cannot be read"),
        (["x=float3[2]"], [], "no dtype is called 'float3'; did you mean 'float32'?"),
        (["x=float32[2*n]"], [], "'2*n' is neither a size nor an axis"),
        (["x=float32[n=3]", "y=float32[n=4]"], [], "the axis n has the size 3 elsewhere"),
        (["x=float32[2]"], ["width"], "--arg 'width' cannot be read"),
        (["x=float32[2]"], ["width=[1"], "is no value that YAML can read"),
    ],
)
def test_words_that_cannot_be_meant_are_one_sentence(inputs: list[str], arguments: list[str], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        config_of("a.b", inputs, arguments)
    assert said in str(raised.value)
    with pytest.raises(UsageError, match="cannot be the name of a model"):
        yaml_of("../x", config_of("a.b", ["x=float32[2]"], []))


def test_new_writes_a_file_once_and_says_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["batch-export", "new", "two", "--from", "of_mine:two", "--arg", "width=8", "--to", "conf"]
    words += [word for text in INPUTS for word in ("--input", text)]
    assert main(words) == 0
    assert "python -m batch_export --config-dir conf 'matrix.models=[two]'" in capsys.readouterr().out
    written = Path("conf/model/two.yaml").read_text()
    assert main(words) == 2
    assert "conf/model/two.yaml is there already. Next step: take another name" in capsys.readouterr().err
    assert Path("conf/model/two.yaml").read_text() == written
    assert main(["batch-export", "--config-dir", "conf", "plan", "matrix.models=[own]"]) == 0
    assert capsys.readouterr().out.startswith("two/static/opset20/cpu/core\n")


def test_try_sweeps_over_a_model_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["batch-export", "try", "of_mine:two", "--arg", "width=8", "runner.n_jobs=1", "measure.enabled=false"]
    words += [word for text in INPUTS for word in ("--input", text)]
    assert main(words) == 0
    run = resolve_run("latest", Path("outputs"))
    assert {record.cell.dynamic: record.verdict for record in read_records(run)} == {"static": "pass", "full": "pass"}
    assert (Path("outputs") / ".gitignore").is_file()
    capsys.readouterr()
    assert main(["batch-export", "explain", "two/full/opset20/cpu/core"]) == 0  # the run's own config folder is found
    assert "cached" in capsys.readouterr().out
