"""sources/search_path.py: what children have on their path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from batch_export.sources.search_path import path_of_children


@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        (["src", "z.zip", "lib"], ["", "src", "z.zip", "lib"]),
        (["z.zip", "src", "lib"], ["", "z.zip", "src", "lib"]),
        (["src", "lib", "z.zip"], ["", "src", "lib", "z.zip"]),
        (["z.zip"], ["", "z.zip"]),
        (["src", "gone", "lib"], ["", "src", "gone", "lib"]),
        (["site-packages", "src"], ["", "site-packages", "src"]),
        (["y.zip", "z.zip", "src"], ["", "y.zip", "z.zip", "src"]),
        (["", "y.zip", "src", "z.zip"], ["", "y.zip", "src", "z.zip"]),
    ],
)
def test_what_is_no_root_stays_between_the_roots_that_it_lies_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inherited: list[str], expected: list[str]
) -> None:
    here = Path(os.path.realpath(tmp_path))
    for name in ("src", "lib", "site-packages"):
        (here / name).mkdir()
    for name in ("y.zip", "z.zip"):
        (here / name).write_bytes(b"")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(here / name) for name in inherited))
    roots = [str(here), *(str(here / name) for name in inherited if name in ("src", "lib"))]
    assert path_of_children(roots).split(os.pathsep)[: len(expected)] == [
        str(here / name) if name else str(here) for name in expected
    ]
