"""What is written once: words of sentences, names of stages, and files that appear whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import get_args

import pytest

from batch_export import words
from batch_export.exporter.repro.script import ENDED
from batch_export.files import whole_file
from batch_export.findings.sarif import _HELP as HELP
from batch_export.record import PROCESS_STAGES, Stage


@pytest.mark.parametrize(
    ("text", "line"),
    [("", ""), ("\n \n a b \nc", "a b"), ("x" * 200_000, "x" * 100_000), ("\n" * 200_000 + "late", "")],
)
def test_the_first_line_that_says_something(text: str, line: str) -> None:
    assert words.first_line(text) == line


def test_an_error_in_a_line() -> None:
    assert words.error_line(ValueError("\n too many\nmore")) == "too many"
    assert words.error_line(ValueError()) == "ValueError without a message"
    assert words.class_and_line(ValueError("no")) == "ValueError: no"
    assert words.class_and_line(ValueError(" ")) == "ValueError without a message"


def test_one_line_has_no_control_characters() -> None:
    assert words.one_line("\x00\n\x1b[31mred\tand blue\n") == "red and blue"


def test_the_nearest_word() -> None:
    assert words.nearest("bert_tin", ["bert_tiny", "vit"]) == ["bert_tiny"]
    assert words.did_you_mean("xyz", ["bert_tiny"]) == ""
    assert words.did_you_mean("vti", ["vit"]) == "; did you mean 'vit'?"


def test_stages_have_one_list() -> None:
    assert ENDED == PROCESS_STAGES
    assert set(get_args(Stage)) >= set(PROCESS_STAGES)
    assert set(HELP) == set(get_args(Stage))


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"before")

    def interrupted() -> None:
        with whole_file(path) as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["a"]
    with whole_file(path, durable=True) as stream:
        stream.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"


def test_a_scratch_folder_takes_the_unfinished_file_and_the_place_is_made(tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    path = tmp_path / "new" / "a"
    with whole_file(path, scratch=scratch) as stream:
        assert len(os.listdir(scratch)) == 1
        os.fchmod(stream.fileno(), 0o644)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(scratch) == []


@pytest.mark.parametrize("write", ["run folder", "baseline", "store", "surroundings"])
def test_every_whole_file_is_on_the_disk_before_it_has_its_name(
    write: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from batch_export.report.baseline import Baseline, write_baseline
    from batch_export.report.run_folder import write_whole
    from batch_export.store.files import write_atomic

    steps: list[str] = []
    real_sync, real_replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append("fsync"), real_sync(handle))[1])
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("replace"), real_replace(*paths))[1])
    if write == "run folder":
        write_whole(tmp_path / "a", b"x")
    elif write == "baseline":
        write_baseline(tmp_path / "a.json", Baseline())
    elif write == "store":
        write_atomic(tmp_path / "a", b"x", tmp_path)
    else:
        with whole_file(tmp_path / "a", durable=True) as stream:
            stream.write(b"x")
    assert steps[:2] == ["fsync", "replace"]
