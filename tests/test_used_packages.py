"""Which installed packages count for a model's steps."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from batch_export.action import ActionResult
from batch_export.runner.asked_about import MissingModules
from batch_export.runner.askers import Askers
from batch_export.runner.preloaded import Preloaded
from batch_export.runner.used_packages import UsedPackages
from batch_export.sources import distributions, search_path
from batch_export.sources.import_names import ImportNames
from batch_export.sources.recorded import changes


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


def test_a_module_that_another_distribution_adds_to_a_namespace_counts(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_path, "_kept", [])
    (site / "sharing").mkdir()
    (site / "sharing/first.py").write_text("")
    (site / "sharing/inner").mkdir()
    missing = MissingModules(Askers(()))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, missing])
    importlib.import_module("sharing.first")
    for name in ("sharing.second", "sharing.inner.third", "firstly.fourth"):
        with pytest.raises(ImportError):
            importlib.import_module(name)
    assert missing.shared == {"sharing.second", "sharing.inner.third"}  # who owns a file says what lies beside it
    packages = tuple((f"{distributions.WITHOUT_METADATA}{name}", distributions.ABSENT) for name in missing.shared)
    result = ActionResult("Reference", "k", packages=packages)
    assert list(changes(result, [], tmp_path)) == []
    (site / "sharing/second.py").write_text("")
    (site / "second-1.0.dist-info").mkdir()
    (told,) = changes(result, [], tmp_path)
    assert told.startswith("package sharing.second: absent -> content ")
    for name in [name for name in sys.modules if name.partition(".")[0] == "sharing"]:
        del sys.modules[name]
