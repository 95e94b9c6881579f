"""Which file an import takes is told as Python finds it, whatever comes beside it or earlier on the path."""

from __future__ import annotations

import importlib
import os
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

import pytest

from batch_export.sources.module_forms import NOTHING, ModuleStates, is_of_module, module_of

FORMS = [
    "",
    "second/sop/part.txt",
    "second/sop.pyc",
    "second/sop.py",
    f"second/sop{EXTENSION_SUFFIXES[-1]}",
    f"second/sop{EXTENSION_SUFFIXES[0]}",
    "second/sop/__init__.py",
    f"second/sop/__init__{EXTENSION_SUFFIXES[0]}",
    "first/sop/part.txt",
    "first/sop.py",
    "first/sop/__init__.pyc",
]
"""Each is taken before those above it, but for folders without a file of their own."""


def test_what_an_import_takes_is_what_python_finds(tmp_path: Path) -> None:
    roots = [tmp_path / "first", tmp_path / "second"]
    states = []
    for root in roots:
        root.mkdir()
    for form in FORMS:
        if form:
            (tmp_path / form).parent.mkdir(exist_ok=True)
            (tmp_path / form).touch()
        importlib.invalidate_caches()
        found = PathFinder.find_spec("sop", [*map(str, roots)])
        state = ModuleStates(roots).of("sop")
        states.append(state)
        assert is_of_module(state)
        if found is None or found.origin is None:
            assert state == NOTHING
        else:
            assert found.origin.endswith(state.removeprefix("module "))
    assert len({*states}) == 8, states


def test_a_module_at_its_own_path_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "sop.py").touch()
    assert ModuleStates([]).of(str(tmp_path / "sop")) == "module sop.py"
    assert ModuleStates([tmp_path]).of(str(tmp_path / "deep/sop")) == NOTHING


def test_a_listing_is_used_again_only_while_its_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[str] = []
    known = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: listed.append(folder) or known(folder))  # type: ignore[func-returns-value]
    os.utime(tmp_path, ns=(1, 1))
    for _ in range(3):
        assert ModuleStates([tmp_path]).of("sop") == NOTHING
    assert len(listed) == 1
    (tmp_path / "sop.py").touch()
    for _ in range(2):
        assert ModuleStates([tmp_path]).of("sop") == "module sop.py"
    assert len(listed) == 3, "it was changed just now"


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("a/sop.py", "a/sop"),
        ("a/sop/__init__.py", "a/sop"),
        (f"sop{EXTENSION_SUFFIXES[0]}", "sop"),
        ("sop.pyc", "sop"),
        ("sop.txt", None),
    ],
)
def test_files_hold_modules(file: str, module: str | None) -> None:
    assert module_of(file) == module
