"""Where the user's code looks for the metadata of distributions, and what is new there."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from batch_export.runner.asked_distributions import AskedDistributions
from batch_export.runner.askers import Askers
from batch_export.runner.loaded import LoadedFiles
from batch_export.sources import distributions, search_path
from batch_export.sources.closure import is_installed
from batch_export.sources.recorded import ABSENT, IN_ROOT, current_digest


def _none_found(*context: object) -> Iterator[object]:
    return iter(())


@pytest.mark.parametrize("asker", ["importlib.metadata", "importlib_metadata"])
@pytest.mark.parametrize("is_replaced", [False, True], ids=["finder of Python", "finder of a package"])
def test_a_new_distribution_counts_in_a_folder_that_the_model_put_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool, asker: str
) -> None:
    """`importlib_metadata`, once it is imported, puts its own finder in the place of Python's."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    found_by = _none_found if is_replaced else vars(PathFinder).get("find_distributions", _none_found)
    monkeypatch.setattr(PathFinder, "find_distributions", found_by, raising=False)  # that package takes it away, too
    other, root = tmp_path / "other", tmp_path / "root"
    roots = [other, root]
    for folder in (other / "plugins", root / "plugins", root / "later", tmp_path / "store"):
        folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(root / "plugins")
    asked = AskedDistributions(Askers(()))
    asked.watch()
    pytest.importorskip(asker).entry_points()
    found = dict(LoadedFiles(roots, [tmp_path / "store"]).sources(asked.folders))

    def changed() -> list[str]:
        names = [name for name, digest in found.items() if current_digest(name, roots, tmp_path / "store") != digest]
        return [name for name in names if not name.startswith(IN_ROOT)]

    assert changed() == []
    (root / "plugins" / "module.py").write_text("")
    assert changed() == []
    (root / "plugins" / "x.dist-info").mkdir()
    assert changed() == [f"{root / 'plugins'}/*.dist-info/"]
    (root / "plugins" / "x.dist-info").rmdir()
    (root / "plugins" / "module.py").unlink()
    (root / "plugins").rmdir()
    assert current_digest(f"{root / 'plugins'}/*.dist-info/", roots, tmp_path / "store") == ABSENT


def test_what_a_model_puts_on_the_path_is_no_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_path, "_kept", [])
    folder, absent, store = tmp_path / "vendor" / "site-packages", tmp_path / "not_yet", tmp_path / "store"
    (folder / "foo-1.0.dist-info").mkdir(parents=True)
    store.mkdir()
    before = distributions.state(distributions.ALL)
    search_path.keep()
    monkeypatch.syspath_prepend(folder)
    assert distributions.state("foo") == distributions.ABSENT
    assert distributions.state(distributions.ALL) == before
    assert not is_installed(folder / "foo.py")
    found = dict(LoadedFiles([tmp_path], [store]).sources([str(folder), str(absent)]))
    assert found["not_yet/*.dist-info/"] == ABSENT
    (folder / "bar-1.0.dist-info").mkdir()
    absent.mkdir()
    changed = [name for name, digest in found.items() if current_digest(name, [tmp_path], store) != digest]
    assert changed == ["not_yet/*.dist-info/", "vendor/site-packages/*.dist-info/"]
    search_path.keep()
    assert distributions.state("foo") == "1.0"
    assert is_installed(folder / "foo.py")


def test_a_namespace_counts_with_the_folders_it_consists_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_path, "_kept", [])
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first / "of_folders", second):
        folder.mkdir(parents=True)
    for path in (second, first, first):
        monkeypatch.syspath_prepend(path)
    name = f"{distributions.FORM}of_folders"
    before = distributions.state(name)
    (second / "of_folders").mkdir()
    sys.path_importer_cache.clear()
    assert distributions.state(name) not in (before, distributions.ABSENT)
    (second / "of_folders/__init__.py").write_text("")
    sys.path_importer_cache.clear()
    assert distributions.state(name) == "__init__.py"


PACKAGE = """
from importlib.metadata import PackageNotFoundError, entry_points, version

def found(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return ""

AT_IMPORT = found("asked-at-import")

def plugins():
    return entry_points(group="of-a-package")
"""


@pytest.mark.parametrize("what", ["version", "entry points", "nothing"])
def test_what_a_librarys_function_asks_for_counts_where_the_users_code_calls_it(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what the library asks for while it is imported."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    name = f"asking_{what.replace(' ', '_')}"
    (folder / f"{name}.py").write_text(PACKAGE)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.syspath_prepend(folder)
    asked = AskedDistributions(Askers(()))
    asked.watch()
    package = importlib.import_module(name)
    assert asked.states() == {}
    if what == "version":
        assert package.found("asked-when-called") == ""
    elif what == "entry points":
        package.plugins()
    expected = {"version": {"asked-when-called"}, "entry points": {distributions.ALL}, "nothing": set()}
    assert asked.states().keys() == expected[what]
