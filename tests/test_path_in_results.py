"""What the path itself is made of counts for the models that go by it: roots in other places, archives, finders."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sweeping import STAGES, by_name, cells, model, sweep

from batch_export.sources import distributions, editable_maps, path_shape
from batch_export.sources.recorded import modules_digest

BUILT = {**STAGES, "Reference": "fake_stages.built"}
SOURCES = {
    "bystander": "def build(): return 1\n",
    "archived": "import zipped_part\ndef build(): return zipped_part.NUMBER\n",
    "named": (
        "import importlib, pkgutil\n"
        "def build():\n"
        "    names = [one.name for one in pkgutil.iter_modules() if one.name.startswith('zplug_')]\n"
        "    return sum(importlib.import_module(name).NUMBER for name in names)\n"
    ),
    "resources": (
        "from importlib import resources\n"
        "def build(): return resources.files('zassets').joinpath('k.txt').read_text()\n"
    ),
    "beside": (
        "import importlib.util, os\n"
        "def build():\n"
        "    return open(os.path.join(os.path.dirname(importlib.util.find_spec('zpack').origin), 'k.txt')).read()\n"
    ),
    "plugins": (
        "from importlib.metadata import entry_points\n"
        "def build(): return sorted(one.value for one in entry_points(group='zgroup'))\n"
    ),
    "process": (
        "import subprocess, sys\nCODE = 'import importlib.util; print(importlib.util.find_spec(\"zmaybe\") is None)'\n"
        "def build(): return subprocess.check_output([sys.executable, '-c', CODE])\n"
    ),
    "optional": "try: import zflat\nexcept ImportError: zflat = None\ndef build(): return zflat is None\n",
}
BY_PATH = {"named", "plugins", "process"}
"""Models that look all over the path."""


class Project:
    """Models, and the roots that the path has behind them."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch = root, monkeypatch
        self.packages = root / "venv/site-packages"
        self._before = [*sys.path]
        self._inherited = os.path.dirname(__file__)

    def write(self, name: str, text: str) -> None:
        """Writes a file."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def ran(self, *roots: str) -> set[str]:
        """The models that ran with some roots on the path."""
        places = [str(self.root / one) for one in roots]
        path = [str(self.root / "project"), *places, str(self.packages)]
        self.monkeypatch.setattr("sys.path", [*path, *self._before])
        self.monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*path, self._inherited]))
        distributions.look_again()
        models = [replace(model(name), target=f"mine.{name}.build", arguments={}) for name in SOURCES]
        result = by_name(sweep(self.root / "runs", cells(models, opsets=(18,)), stages=BUILT))
        assert {record.verdict for record in result.values()} == {"pass"}, [one.message for one in result.values()]
        return {record.cell.model for record in result.values() if record.actions[0].origin == "ran"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    monkeypatch = pytest.MonkeyPatch()
    root = tmp_path_factory.mktemp("path")
    made = Project(root, monkeypatch)
    made.write("project/mine/__init__.py", "")
    for name, text in SOURCES.items():
        made.write(f"project/mine/{name}.py", text)
    for number in (1, 2):
        made.write(f"r{number}/zassets/k.txt", str(number))
        made.write(f"r{number}/zpack/__init__.py", "")
        made.write(f"r{number}/zpack/k.txt", str(number))
        made.write(f"r{number}/zplug_{number}.py", f"NUMBER = {number}\n")
        with zipfile.ZipFile(root / f"z{number}.zip", "w") as archive:
            archive.writestr("zipped_part.py", f"NUMBER = {number}\n")
    made.write("r3/zother.py", "")
    made.write("flat/zflat/__init__.py", "")
    (made.packages).mkdir(parents=True)
    monkeypatch.chdir(root / "project")
    assert made.ran("r1", "z1.zip") == set(SOURCES)
    yield made
    monkeypatch.undo()


def _installed_flat(project: Project) -> None:
    project.write(
        "venv/site-packages/__editable___zflat_1_0_finder.py",
        f"MAPPING = {{'zflat': {str(project.root / 'flat/zflat')!r}}}\n",
    )


STEPS = {
    "nothing": (("r1", "z1.zip"), set(), None),
    "another root in its place": (("r2", "z1.zip"), {"resources", "beside", "named", "process"}, None),
    "another archive in its place": (("r2", "z2.zip"), {"archived", *BY_PATH}, None),
    "a root behind": (("r2", "z2.zip", "r3"), {"archived", *BY_PATH}, None),
    "nothing again": (("r2", "z2.zip", "r3"), set(), None),
    "a flat editable install": (("r2", "z2.zip", "r3"), {"optional", "archived", *BY_PATH}, _installed_flat),
    "a folder of that name in an earlier root": (
        ("r3", "r2", "z2.zip"),
        {"resources", "named", "process"},
        lambda p: p.write("r3/zassets/k.txt", "3"),
    ),
    "as before": (("r2", "z2.zip", "r3"), set(), None),
    "a module in a root": (("r2", "z2.zip", "r3"), {"process", "named"}, lambda p: p.write("r3/zmaybe.py", "")),
}


@pytest.mark.parametrize("step", STEPS)
def test_models_that_go_by_the_path_run_again(project: Project, step: str) -> None:
    roots, concerned, change = STEPS[step]
    if change is not None:
        change(project)
    assert project.ran(*roots) == concerned


def test_finders_of_editable_installs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    (tmp_path / "one").mkdir()
    (tmp_path / "single.py").write_text("")
    known = {
        "one": str(tmp_path / "one"),
        "single": str(tmp_path / "single"),
        "gone": str(tmp_path / "gone"),
        "a.b": "c",
    }
    finder = tmp_path / "__editable___one_1_0_finder.py"
    finder.write_text(f"MAPPING: dict[str, str] = {known}\nNAMESPACES = {{'space': [{str(tmp_path / 'one')!r}]}}\n")
    assert editable_maps.place_of("one") == str(tmp_path / "one")
    assert editable_maps.place_of("single") == str(tmp_path / "single")
    assert editable_maps.place_of("space") == str(tmp_path / "one")
    assert {editable_maps.place_of(name) for name in ("gone", "a.b", "a", "other")} == {None}
    assert distributions.state(f"{distributions.WITHOUT_METADATA}one") != distributions.ABSENT
    before = path_shape.shape([tmp_path])
    finder.write_text("MAPPING = {'one': 1")
    os.utime(tmp_path, ns=(1, 1))
    assert editable_maps.all_places() == {}
    assert path_shape.shape([tmp_path]) != before


def test_what_an_import_finds_in_a_folder_counts_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("")
    before = modules_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "folder").mkdir()
    assert modules_digest(tmp_path) == before
    (tmp_path / "folder/__init__.py").write_text("")
    assert modules_digest(tmp_path) != before
