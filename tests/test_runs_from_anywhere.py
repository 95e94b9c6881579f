"""Verbs about a run: from any folder, by any of its names, with the config folders that it was started with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from batch_export.cli.main import main, verb_first
from batch_export.report.run_folder import read_records
from batch_export.report.runs import resolve_run

MODULE = """
import torch


class Refusing(torch.nn.Module):
    def forward(self, input):
        return input if float(input.sum()) > 0 else input.sum()


def refusing():
    return Refusing()
"""
CONFIG = """
_target_: made_here.refusing
inputs:
  input: {dtype: float32, shape: [batch, 8]}
axes:
  batch: {example: 2, check: [1]}
tags: [odd]
"""
CELL = "mine/static/opset20/cpu/core"


def command(*arguments: str) -> int:
    return main(["batch-export", *arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a model of a folder's own, whose capture fails; started in that folder."""
    home = tmp_path_factory.mktemp("home")
    (home / "conf" / "model").mkdir(parents=True)
    (home / "conf" / "made_here.py").write_text(MODULE)
    (home / "conf" / "model" / "mine.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(home)
        patched.setattr(sys, "path", list(sys.path))
        assert command("--config-dir", "conf", "matrix.models=[own]", "runner.n_jobs=1", "measure.enabled=false") == 1
    return resolve_run("latest", home / "outputs")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is asked from an empty folder; where a verb goes is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_bisect_finds_the_models_of_a_run_that_was_started_elsewhere(
    run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command("bisect", CELL, "--run", str(run), "--json", "found.json") == 0
    assert "Refusing" in capsys.readouterr().out
    assert (tmp_path / "found.json").is_file()  # where it was asked for, not where the run was started


def test_explain_takes_config_folders_and_settings_from_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("explain", CELL, "--run", str(run)) == 0
    said = capsys.readouterr().out
    assert CELL in said
    assert "cached" in said


def test_explain_without_a_run_takes_the_newest_that_has_the_cell(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parents[2])
    assert command("explain", CELL) == 0
    assert "cached" in capsys.readouterr().out
    assert command("explain", CELL.replace("mine", "other")) == 2
    assert "Unknown model 'other'" in capsys.readouterr().err


@pytest.mark.ops
def test_config_folders_that_have_moved_are_named_and_may_be_given_anew(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = run.parents[2]
    (home / "conf").rename(home / "moved")
    try:
        assert command("explain", CELL, "--run", str(run)) == 2
        gone = f"the run {run} was started with the config folder {home / 'conf'}, which is not there any more"
        assert f"{gone}. Next step: name where it is now with --config-dir DIR" in capsys.readouterr().err
        assert command("explain", CELL, "--run", str(run), "--config-dir", str(home / "moved")) == 0
        assert command("bisect", CELL, "--run", str(run), "--config-dir", str(home / "conf")) == 2
        assert "not found. Next step: name one that is there" in capsys.readouterr().err
        assert command("bisect", CELL, "--run", str(run)) == 3
        said = capsys.readouterr().err
        assert f"{gone}; modules that lay there are found with --config-dir DIR" in said
        assert "error: mine/static/opset20/cpu/core cannot be looked at again: model 'mine': there is no module" in said
        assert "Traceback" not in said
        assert command("bisect", CELL, "--run", str(run), "--config-dir", str(home / "moved")) == 0
    finally:
        (home / "moved").rename(home / "conf")


@pytest.mark.parametrize("word", ["latest", "latest~0", "folder"])
def test_a_folder_of_runs_elsewhere_has_a_latest_too(run: Path, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    named = str(run) if word == "folder" else str(run.parents[1] / word)
    assert command("cache", "export", "results.tar", "--run", named) == 0
    keys = {action.key for record in read_records(run) for action in record.actions}
    assert f"wrote results.tar: {len(keys)} action result" in capsys.readouterr().out
    assert resolve_run(named, Path("outputs")) == run


def test_flags_may_stand_before_the_verb(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = run.parents[2]
    assert command("--outputs", str(home / "outputs"), "report", "latest", "--format", "json") == 1
    assert '"fail": 1' in capsys.readouterr().out
    assert command("--config-dir", str(home / "conf"), "plan", "matrix.models=[own]") == 0
    assert capsys.readouterr().out.splitlines()[0] == CELL
    assert command("--config-dir", str(home / "conf"), "list", "tags") == 0
    assert "tag:odd" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "means"),
    [
        ("plan +sweep=all", "plan +sweep=all"),
        ("--config-dir conf plan a=1", "plan a=1 --config-dir conf"),
        ("--config-dir plan a=1", "--config-dir plan a=1"),
        ("--config-dir plan plan a=1", "plan a=1 --config-dir plan"),
        ("--outputs export report latest", "report latest --outputs export"),
        ("matrix.opsets=[18] plan", "plan matrix.opsets=[18]"),
        ("wibble plan", "wibble plan"),
        ("bisect a/b/opset18/c/d --run report", "bisect a/b/opset18/c/d --run report"),
        ("+sweep=all", "+sweep=all"),
    ],
)
def test_a_verb_is_told_from_the_value_of_a_flag(typed: str, means: str) -> None:
    assert verb_first(typed.split()) == means.split()


def test_list_alone_says_what_can_be_listed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("list", "--outputs", str(run.parents[1])) == 0
    said = capsys.readouterr().out
    for word in ("list models", "list tags", "list sweeps", "list cells", "list runs       1"):
        assert word in said
    assert command("list", "cells", "matrix.models=[cnn]", "matrix.opsets=[18,20]") == 0
    assert capsys.readouterr().out.splitlines() == ["cnn/static/opset18/cpu/core", "cnn/static/opset20/cpu/core"]
    assert command("list", "runs", "--outputs", str(run.parents[1])) == 0
    assert "1 fail" in capsys.readouterr().out
