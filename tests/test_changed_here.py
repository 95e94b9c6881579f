"""A function that a sweep imports by its name is refused where this process has changed it, and only there."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from batch_export import sweep
from batch_export.api.changed_here import changed_here
from batch_export.errors import UsageError
from batch_export.stages.code_state import code_state

MINE = """
import functools, itertools, os, random, time
import torch
import lent_words
import lent_package.inner
from lent_words import NUMBER, helped
K = 2.0
SIZES = (4, 2 ** 3)
STARTED, LUCK, PROCESS = time.time(), random.random(), os.getpid()
HOME = os.environ["HOME"]
CACHE = {}
COUNT = 0
MODEL = None
LOG = print

if PROCESS % 2:
    ODD = True
else:
    ODD = False

def counted(function):
    @functools.wraps(function)
    def inner(*given):
        global COUNT
        COUNT += 1
        CACHE[COUNT] = given
        return function(*given)
    return inner

class Scale(torch.nn.Module):
    made = 0
    gain = 1.0
    def __init__(self, factor=1.0):
        super().__init__()
        Scale.made += 1
        self.factor = factor
    def forward(self, x):
        return x * self.factor * self.gain + lent_words.SHIFT
    @property
    def twice(self):
        return self.factor * 2

class Wider(Scale):
    pass

class Halved(Scale):
    def forward(self, x):
        return x / 2

class Engine:
    def power(self):
        return 1.0

ENGINE = Engine()

@functools.lru_cache
def table(size):
    return list(range(size))

@counted
def build(factor=2.0, *, more=1.0):
    global MODEL
    MODEL = MODEL or torch.nn.Identity()
    table(SIZES[0])
    words = STARTED, LUCK, PROCESS, HOME, COUNT, ODD, LOG
    return torch.nn.Sequential(MODEL, Scale(factor * K * more * helped(NUMBER)))

def plain(factor=2.0, *, more=1.0):
    deep = lent_package.inner.depth() * ENGINE.power() * len(SIZES[:1])
    return torch.nn.Sequential(Scale(factor * more * deep), build(), Wider(), Halved())
"""
WORDS = """
NUMBER = 3.0
SHIFT = 1.0
def helped(x):
    return x if x > 0 else next(iter({1.5, 2.5} & {1.5}))
"""
INNER = """
def depth():
    return 1.0
"""
ANEW = """
import json, sys
from batch_export.stages.code_state import code_state
print(json.dumps(code_state(sys.argv[1])))
"""


def _write_package(folder: Path) -> None:
    (folder / "lent_package").mkdir()
    (folder / "lent_package/__init__.py").write_text("")
    (folder / "lent_package/inner.py").write_text(INNER)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "lent_mine.py").write_text(MINE)
    (tmp_path / "lent_words.py").write_text(WORDS)
    _write_package(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("lent_mine")
    for name in ("lent_mine", "lent_words", "lent_package", "lent_package.inner"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def anew(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Texts of a process that has just imported a source, made once for each."""

    @cache
    def texts(source: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("anew")
        (folder / "lent_mine.py").write_text(source)
        (folder / "lent_words.py").write_text(WORDS)
        _write_package(folder)
        words = [sys.executable, "-c", ANEW, "lent_mine.plain"]
        told = subprocess.run(words, capture_output=True, text=True, check=True, cwd=folder).stdout
        return json.loads(told)  # type: ignore[no-any-return]

    return texts


def nothing(_: Any) -> None:
    """In the place of a change."""


def used(mine: Any) -> None:
    for _ in range(3):
        mine.plain()(torch.ones(2, 4))
    assert (mine.COUNT, mine.Scale.made) == (3, 12)


def edited(mine: Any) -> None:
    Path(mine.__file__).write_text(MINE.replace("x * self.factor", "x / self.factor"))


def given(mine: Any) -> None:
    mine.plain.__kwdefaults__ = {"more": 5.0}


CHANGES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "nothing": (nothing, []),
    "caches, counters, lazy values": (used, []),
    "global": (lambda mine: setattr(mine, "K", 3.0), ["lent_mine.K"]),
    "tuple": (lambda mine: setattr(mine, "SIZES", (4, 9)), ["lent_mine.SIZES"]),
    "global of another module": (lambda mine: setattr(mine.lent_words, "SHIFT", 2.0), ["lent_words.SHIFT"]),
    "imported global": (lambda mine: setattr(mine, "NUMBER", 4.0), ["lent_mine.NUMBER"]),
    "defaults": (lambda mine: setattr(mine.plain, "__defaults__", (18.0,)), ["lent_mine.plain"]),
    "defaults by name": (given, ["lent_mine.plain"]),
    "code": (
        lambda mine: setattr(mine.plain, "__code__", (lambda factor=1.0, *, more=1.0: 1).__code__),
        ["lent_mine.plain"],
    ),
    "forward": (lambda mine: setattr(mine.Scale, "forward", lambda self, x: x), ["lent_mine.Scale.forward"]),
    "property": (lambda mine: setattr(mine.Scale, "twice", property(lambda self: 1)), ["lent_mine.Scale.twice"]),
    "attribute of a class": (lambda mine: setattr(mine.Scale, "gain", 7.0), ["lent_mine.Scale.gain"]),
    "helper": (lambda mine: setattr(mine, "helped", lambda x: 2 * x), ["lent_mine.helped"]),
    "class": (lambda mine: setattr(mine, "Scale", torch.nn.Identity), ["lent_mine.Scale"]),
    "added over an inherited one": (
        lambda mine: setattr(mine.Wider, "forward", lambda self, x: x),
        ["lent_mine.Wider.forward"],
    ),
    "taken away": (lambda mine: delattr(mine.Halved, "forward"), ["lent_mine.Halved.forward"]),
    "other bases": (lambda mine: setattr(mine.Wider, "__bases__", (mine.Halved,)), ["lent_mine.Wider"]),
    "function of a module in a package": (
        lambda mine: setattr(mine.lent_package.inner, "depth", lambda: 2.0),
        ["lent_package.inner.depth"],
    ),
    "method of an instance's class": (
        lambda mine: setattr(mine.Engine, "power", lambda self: 2.0),
        ["lent_mine.Engine.power"],
    ),
    "in the place of a builtin": (lambda mine: setattr(mine, "len", lambda x: 3), ["lent_mine.plain"]),
    "edited file": (edited, ["lent_mine.Scale.forward"]),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_another_thing_here_is_named(mine: Any, anew: Callable[[str], dict[str, str]], kind: str) -> None:
    change, names = CHANGES[kind]
    change(mine)
    there = anew(Path(mine.__file__).read_text())
    assert changed_here(code_state("lent_mine.plain"), there) == names


def test_a_function_that_this_process_changed_is_refused_with_a_way_on(mine: Any) -> None:
    mine.K = 3.0
    with pytest.raises(
        UsageError,
        match=r"model 'mine': lent_mine\.K differs between this process and the source .*models=\{'mine': plain\(\)\}",
    ):
        sweep(models={"mine": mine.plain}, inputs={"input": torch.ones(2, 4)})
