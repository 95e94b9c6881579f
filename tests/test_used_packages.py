"""Which installed packages count for a model's steps."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from batch_export.runner.preloaded import Preloaded
from batch_export.runner.used_packages import UsedPackages
from batch_export.sources.import_names import ImportNames


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages: `firstly`, and `secondly`, which one of our own steps imports."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    for name in ("firstly", "secondly"):
        (folder / f"{name}.py").write_text("")
        info = folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "RECORD").write_text(f"{name}.py,,\n{name}-1.0.dist-info/METADATA,,\n")
        (info / "top_level.txt").write_text(f"{name}\n")
    monkeypatch.syspath_prepend(folder)
    importlib.invalidate_caches()
    return folder


def test_what_an_earlier_step_imported_counts_for_later_ones_and_what_ours_import_does_not(site: Path) -> None:
    used = UsedPackages(Preloaded(), ImportNames())
    importlib.import_module("firstly")
    assert "firstly" in dict(used.packages(["mine.build"], (), {}))
    importlib.import_module("secondly")
    used.set_aside()
    found = dict(used.packages(["mine.build"], (), {}))
    assert "firstly" in found
    assert "secondly" not in found
