"""sources/start_up.py: what every start of Python executes has a state, which changes with it."""

from __future__ import annotations

import sysconfig
from itertools import pairwise
from pathlib import Path

import pytest

from batch_export.action import ActionResult
from batch_export.sources import distributions, pythons_variables, recorded, start_up

SETUPTOOLS = "import os; enabled = os.environ.get('LOCAL'); enabled and __import__('_distutils_hack')\n"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    sysconfig.get_config_vars()  # once, from the path as it is
    monkeypatch.setattr("sys.path", [str(folder)])
    return folder


def states() -> dict[str, str]:
    distributions.look_again()
    return {name: distributions.state(name) for name in start_up.NAMES}


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("sitecustomize.py", ["a = 1", "a = 2"]),
        ("usercustomize/__init__.py", ["a = 1", "a = 2"]),
        ("mine.pth", ["import builtins; builtins.a = 1", "import builtins; builtins.a = 2"]),
    ],
)
def test_it_appears_and_changes(packages: Path, name: str, texts: list[str]) -> None:
    found = [states()]
    (packages / name).parent.mkdir(exist_ok=True)
    for text in texts:
        (packages / name).write_text(text)
        found.append(states())
    assert set(found[0].values()) == {"absent"}
    assert all(one != other for one, other in pairwise(found))


@pytest.mark.parametrize("text", ["/a/folder\n", "# import this\n", "import __editable___mine_finder\n", SETUPTOOLS])
def test_a_line_that_only_says_where_modules_are_is_none(packages: Path, text: str) -> None:
    (packages / "mine.pth").write_text(text)
    assert set(states().values()) == {"absent"}


def test_what_lies_in_a_layer_is_left_to_its_content(packages: Path) -> None:
    (packages / "sitecustomize.py").write_text("a = 1")
    (packages / "mine.pth").write_text("import builtins")
    distributions.look_again()
    outside = dict(distributions.outside(((name, "content") for name in start_up.NAMES), str(packages.parent)))
    assert outside == dict.fromkeys(start_up.NAMES, "absent")


def test_results_that_say_nothing_of_pythons_variables_hold_while_nothing_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(name: str, package: str) -> list[str]:
        result = ActionResult(name, "key", packages=((package, distributions.state(package)),))
        return list(recorded.changes(result, [], tmp_path))

    for name in pythons_variables.NAMES:
        monkeypatch.delenv(name, raising=False)
    distributions.look_again()
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    assert said("Reference", start_up.NAMES[0]) == []
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    assert said("Reference", start_up.NAMES[0]) == ["environment variable PYTHONHASHSEED has another value"]
    assert said("Translate", "numpy") == []  # no code of the model's has run
