"""sources/name_texts.py: every name of a file is a text that can be stored, and comes back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batch_export.cli.main import main
from batch_export.digest import digest_value
from batch_export.sources.name_texts import name_of, text_of

NAMES = st.binary(max_size=20).map(lambda data: os.path.normpath(os.fsdecode(data)))


@given(NAMES)
@example("w\udcff.bin")
@example("/a\\xff/\udcff\\")
@example("bytes/w")
def test_a_name_comes_back(name: str) -> None:
    text = text_of(name)
    assert text.encode().decode() == text
    assert name_of(text) == name


@given(NAMES, NAMES)
@example("\udcff", "\udcfe")
@example("\udcff", r"\xff")
def test_two_names_never_have_the_same_text_or_digest(one: str, other: str) -> None:
    assert (text_of(one) == text_of(other)) is (one == other)
    assert (digest_value([one]) == digest_value([other])) is (one == other)


def test_a_name_that_no_file_can_have_is_a_text_too() -> None:
    assert text_of("w\ud800").encode()


def test_a_run_in_a_folder_whose_name_is_no_text_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/p\xff"))
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes no such names")
    monkeypatch.chdir(folder)
    assert main(["batch-export", "matrix.models=[mlp_nested]"]) == 2
    said = capsys.readouterr().err.strip()
    assert f"the current folder is {tmp_path}/p\\xff, which is no UTF-8" in said
    assert "Next step: rename" in said
    assert len(said.splitlines()) == 1
    monkeypatch.chdir(tmp_path)
    assert main(["batch-export", "matrix.models=[mlp_nested]", f"store.path={folder}/store"]) == 2
    assert "p\\xff/store" in capsys.readouterr().err
