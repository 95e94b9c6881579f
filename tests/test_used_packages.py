"""Which installed packages count for a model's steps."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from batch_export.action import ActionResult
from batch_export.runner.asked_about import MissingModules, earlier_packages
from batch_export.runner.askers import Askers
from batch_export.runner.module_files import file_of
from batch_export.runner.opened_of_packages import OpenedOfPackages
from batch_export.runner.preloaded import Preloaded
from batch_export.runner.used_packages import UsedPackages
from batch_export.sources import distributions, file_digests, file_times, search_path
from batch_export.sources.import_names import ImportNames
from batch_export.sources.module_forms import ModuleStates
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


def test_a_module_that_comes_into_an_installed_packages_folder_counts(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_path, "_kept", [])
    (site / "whole").mkdir()
    (site / "whole/__init__.py").write_text("")
    (site / "whole-1.0.dist-info").mkdir()
    (site / "whole-1.0.dist-info/RECORD").write_text("whole/__init__.py,sha256=1,1\n")
    importlib.invalidate_caches()
    missing = MissingModules(Askers(()))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, missing])
    with pytest.raises(ImportError):
        importlib.import_module("whole.local_settings")
    del sys.modules["whole"]
    assert missing.shared == {"whole.local_settings"}
    packages = ((f"{distributions.WITHOUT_METADATA}whole.local_settings", distributions.ABSENT),)
    result = ActionResult("Reference", "k", packages=packages)
    assert list(changes(result, [], tmp_path)) == []
    (site / "whole/local_settings.py").write_text("")
    distributions.look_again()
    (told,) = changes(result, [], tmp_path)
    assert told.startswith("package whole.local_settings: absent -> content ")


def test_what_would_be_imported_in_the_place_of_a_named_module_of_a_package_counts(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_path, "_kept", [])
    (site / "whole").mkdir()
    for name in ("__init__.py", "ext.py", "other.py"):
        (site / "whole" / name).write_text("")
    importlib.invalidate_caches()
    (tmp_path / "mine.py").write_text("from whole import ext\nimport os.path, torch.nn\n")
    used = UsedPackages(Preloaded(), ImportNames())
    for module in ("whole.ext", "whole.other"):
        importlib.import_module(module)
    found = used.packages(["mine.build"], (), {"mine": str(tmp_path / "mine.py")})
    for module in ("whole", "whole.ext", "whole.other"):
        del sys.modules[module]
    packages = tuple((name, state) for name, state in found if name.startswith(distributions.FORM))
    assert packages == ((f"{distributions.FORM}whole.ext", "ext.py"),)
    result = ActionResult("Reference", "k", packages=packages)
    assert list(changes(result, [], tmp_path)) == []
    (site / "whole/ext.abi3.so").write_text("")
    distributions.look_again()
    assert list(changes(result, [], tmp_path)) == ["package whole.ext: ext.py -> ext.abi3.so"]
    assert distributions.outside(packages, str(site)) == ()


def test_a_package_in_an_earlier_folder_of_packages_is_imported_in_a_modules_place(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = tmp_path / "earlier/site-packages"
    earlier.mkdir(parents=True)
    monkeypatch.setattr(search_path, "_kept", [])
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(earlier), *sys.path])
    monkeypatch.delitem(sys.modules, "firstly", raising=False)
    importlib.import_module("firstly")
    assert earlier_packages(["json"], file_of, "") == {str(folder / "json") for folder in (earlier, site)}
    places = earlier_packages(["firstly", "nosuch"], file_of, "")
    del sys.modules["firstly"]
    assert places == {str(earlier / "firstly")}
    result = ActionResult("Reference", "k", asked=tuple((place, ModuleStates(()).of(place)) for place in places))
    assert list(changes(result, [], tmp_path)) == []
    (earlier / "firstly").mkdir()
    (earlier / "firstly/__init__.py").write_text("")
    assert list(changes(result, [], tmp_path)) == [f"{earlier}/firstly: no module -> module firstly/__init__.py"]


@pytest.mark.parametrize(
    ("lists", "unlisted"),
    [
        ("whole/__init__.py,sha256=1,1\nwhole/late.py,sha256=1,1\nwhole/w.txt,sha256=1,1\n", set()),
        ("whole/__init__.py,sha256=1,1\nwhole/w.txt,sha256=1,1\n", {"late.py"}),
        ("whole/__init__.py,sha256=1,1\nwhole/late.py,,\nwhole/w.txt,,\n", {"late.py", "w.txt"}),
        ("", {"__init__.py", "late.py", "w.txt"}),
    ],
    ids=["listed", "made after the installation", "listed without hashes", "nothing is listed"],
)
def test_what_no_list_has_counts_by_itself_modules_too(
    site: Path, monkeypatch: pytest.MonkeyPatch, lists: str, unlisted: set[str]
) -> None:
    monkeypatch.setattr(search_path, "_kept", [])
    (site / "whole/__pycache__").mkdir(parents=True)
    (site / "whole-1.0.dist-info").mkdir()
    (site / "whole-1.0.dist-info/RECORD").write_text(lists)
    (site / "whole-1.0.dist-info/top_level.txt").write_text("whole\n")
    modules = [str(site / "whole" / name) for name in ("__init__.py", "late.py")]
    opened = [modules[0], str(site / "whole/__pycache__/late.cpython-311.pyc"), str(site / "whole/w.txt")]
    for name in (*modules, *opened):
        Path(name).touch()
    of_packages = OpenedOfPackages()
    assert of_packages.look(opened, modules, lambda folder: folder) == {str(site / "whole/w.txt")}
    assert {*of_packages.unlisted} == {str(site / "whole" / name) for name in unlisted}


@pytest.mark.parametrize("name", ["METADATA", "entry_points.txt"])
@pytest.mark.parametrize("direct", ['{"url": "file:///w.whl"}', '{"url": "file:///w", "dir_info": {"editable": true}}'])
def test_what_programs_ask_of_metadata_is_part_of_the_state_of_what_came_from_a_path(
    site: Path, name: str, direct: str
) -> None:
    info = site / "firstly-1.0.dist-info"
    (info / "direct_url.json").write_text(direct)
    before = distributions.state("firstly")
    (info / name).write_text("Summary: another\n")
    distributions.look_again()
    assert distributions.state("firstly") != before


def test_what_a_distributions_record_lists_is_part_of_its_state(site: Path) -> None:
    record = site / "firstly-1.0.dist-info/RECORD"
    listed = record.read_text()
    before = distributions.state("firstly")
    assert before.startswith("1.0#")
    own = "firstly-1.0.dist-info"
    others = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")
    more = [f"{own}/{name},sha256=2,1" for name in others]
    more += ["../../bin/firstly,sha256=2,1", "__pycache__/firstly.cpython-311.pyc,,"]
    for text, counts in (
        ("".join(f"{line}\n" for line in reversed([*listed.splitlines(), *more])), False),
        (listed.replace("firstly.py,,", "firstly.py,sha256=2,1"), True),
        (listed + "firstly.txt,sha256=2,1\n", True),
    ):
        record.write_text(text)
        assert (distributions.state("firstly") != before) is counts
    record.unlink()
    assert distributions.state("firstly") == "1.0"
    assert distributions.told(before, "1.0") == f"{before} -> 1.0"
    assert distributions.told(before, "2.0#1") == "1.0 -> 2.0"
    assert distributions.told(before, "absent") == "1.0 -> absent"


def test_a_long_record_is_read_once_by_all_processes(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = site / "firstly-1.0.dist-info/RECORD"
    monkeypatch.setattr(file_digests, "_LONG_RECORD_BYTES", 1)
    monkeypatch.setattr(file_digests._Remembered, "folder", tmp_path / "memo")
    later = record.stat().st_ctime_ns + 3_600_000_000_000
    monkeypatch.setattr(file_digests, "last_change", lambda status: status.st_ctime_ns)
    monkeypatch.setattr(file_times.time, "time_ns", lambda: later)
    before = distributions.state("firstly")
    file_digests._record_digest.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lambda *_, **__: pytest.fail("read again"))
        assert distributions.state("firstly") == before
    record.write_text(f"{record.read_text()}firstly.txt,sha256=2,1\n")
    assert distributions.state("firstly") != before


@pytest.mark.parametrize(
    ("name", "lists", "listed"),
    [
        ("firstly/w.txt", {"RECORD": "firstly/w.txt,sha256=1,1\n"}, True),
        ("firstly/a,b.txt", {"RECORD": 'firstly/w.txt,,\n"firstly/a,b.txt",sha256=1,1\n'}, True),
        ("firstly/made.txt", {"RECORD": "firstly/w.txt,sha256=1,1\n"}, False),
        ("firstly/made.txt", {"RECORD": "", "SOURCES.txt": "firstly/w.txt\n"}, False),
        ("firstly/made.txt", {"RECORD": "", "SOURCES.txt": "firstly/made.txt\n"}, True),
        ("firstly/made.txt", {"RECORD": "", "installed-files.txt": "../firstly/w.txt\n../firstly/made.txt\n"}, True),
        ("firstly/made.txt", {"RECORD": "", "top_level.txt": "firstly\n"}, False),
        ("firstly/w.txt", {"RECORD": "firstly/w.txt,,\n"}, False),
        ("nobodys/made.txt", {"RECORD": "firstly/w.txt,,\n"}, False),
    ],
)
def test_a_file_that_its_owner_lists_is_told_from_others(
    site: Path, name: str, lists: dict[str, str], listed: bool
) -> None:
    (site / name).parent.mkdir()
    (site / name).parent.joinpath("__init__.py").touch()
    for list_, text in lists.items():
        (site / "firstly-1.0.dist-info" / list_).write_text(text)
    assert distributions.lists(str(site / name)) is listed


def test_where_an_editable_installs_finder_says_that_a_package_lies_counts(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_path, "_kept", [])
    finder = "__editable___edited_1_finder"
    (site / f"{finder}.py").write_text("MAPPING = {'edited': 'one'}\n")
    (tmp_path / "one").mkdir()
    (tmp_path / "one/edited.py").write_text("")
    importlib.import_module(finder)
    used = UsedPackages(Preloaded(), ImportNames())
    for name in ("firstly", "edited"):
        specified = importlib.util.spec_from_file_location(
            name, tmp_path / "one/edited.py" if name == "edited" else None
        )
        if specified is not None:
            sys.modules[name] = importlib.util.module_from_spec(specified)
        else:
            importlib.import_module(name)
        found = dict(used.packages(["mine.build"], (), {}))
        assert (distributions.WITHOUT_METADATA + finder in found) == (name == "edited")
    result = ActionResult("Reference", "k", packages=tuple(found.items()))
    assert list(changes(result, [], tmp_path)) == []
    (site / f"{finder}.py").write_text("MAPPING = {'edited': 'two'}\n")
    distributions.look_again()
    (told,) = changes(result, [], tmp_path)
    assert told.startswith(f"package {finder}: content ")
    for name in ("edited", finder):
        del sys.modules[name]
