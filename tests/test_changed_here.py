"""A function that a sweep imports by its name is refused where this process has changed it, and only there."""

from __future__ import annotations

import colorsys
import importlib
import json
import math
import operator
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
from __future__ import annotations
import enum, functools, itertools, math, operator, os, random, time
import numpy as np
import torch
import torch.nn.functional as F
import lent_words
import lent_package.inner
from typing import TYPE_CHECKING
from colorsys import rgb_to_hsv
from operator import neg
from lent_words import NUMBER, helped
from lent_words import *
K = 2.0
SIZES = (4, 2 ** 3)
STARTED, LUCK, PROCESS = time.time(), random.random(), os.getpid()
HOME = os.environ["HOME"]
CACHE = {}
COUNT = 0
MODEL = None
LOG = print
ACT, DTYPE, DEVICE, ROOT = torch.relu, torch.float32, torch.device("cpu"), math.sqrt
WHICH, DTYPES, WORDS = {"a", "b"}, frozenset({torch.float16, torch.float64}), frozenset(["x", "y"])
SEEN = {"first"}
LAZY = None
LATER = STARTED + 1
PATTERN: Tensor | None = None
if TYPE_CHECKING:
    from torch import Tensor
if True:
    PICKED = 1.0

class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"

MODE = Mode.SUM
POOL, GELU, ERF, SINE, OPERATOR = F.max_pool2d, F.gelu, torch.special.erf, np.sin, torch.ops.aten.relu.default
HALVES = functools.partial(torch.mul, other=0.5)
APPEND, DRAWN, METHOD = [].append, random.random, torch.Tensor.relu
FOUND = getattr(torch, "tanh") if PROCESS % 2 else torch.relu
LIST, MADE, MANY = [], {str(PROCESS)}, {one for one in range(3)}
try:
    import surely_not_installed as quick
except ImportError:
    import math as quick

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
    act = torch.relu
    bare = staticmethod(torch.relu)
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

@torch.jit.ignore
def ignored(x: torch.Tensor) -> torch.Tensor:
    return x

scripted = torch.jit.script(lambda x: x) if False else ignored
noted = torch.no_grad()(ignored)

def kinds(dtype=torch.float32, act=F.relu, seen={1}):
    seen.add(len(seen))
    SEEN.add(len(SEEN))
    LIST.append(seen)
    globals()["LAZY"] = torch.nn.Identity()
    words = POOL, GELU, ERF, SINE, OPERATOR, HALVES, APPEND, DRAWN, METHOD, FOUND, MADE, MANY, quick, scripted, noted
    rgb_to_hsv(0.0, 0.0, 0.0)
    told = ACT, DTYPE, DEVICE, ROOT, DTYPES, WORDS, MODE, PICKED, STARRED, neg, table, np, LAZY, LATER, PATTERN
    return "a" in WHICH and len(words) + len(told)

@counted
def build(factor=2.0, *, more=1.0):
    global MODEL
    MODEL = MODEL or torch.nn.Identity()
    table(SIZES[0])
    words = STARTED, LUCK, PROCESS, HOME, COUNT, ODD, LOG
    return torch.nn.Sequential(MODEL, Scale(factor * K * more * helped(NUMBER)))

def plain(factor=2.0, *, more=1.0):
    kinds()
    deep = lent_package.inner.depth() * ENGINE.power() * len(SIZES[:1])
    return torch.nn.Sequential(Scale(factor * more * deep), build(), Wider(), Halved())
"""
WORDS = """
NUMBER = 3.0
STARRED = 3.0
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


def elsewhere(mine: Any) -> None:
    """As if the package gave another function where it runs elsewhere, in a notebook or a terminal."""
    mine.rgb_to_hsv = colorsys.rgb_to_hsv = colorsys.rgb_to_hls


CHANGES: dict[str, tuple[Callable[[Any], Any], list[str]]] = {
    "nothing": (nothing, []),
    "caches, counters, lazy values": (used, []),
    "global": (lambda mine: setattr(mine, "K", 3.0), ["lent_mine.K"]),
    "tensor for a number": (lambda mine: setattr(mine, "K", torch.tensor(3.0)), ["lent_mine.K"]),
    "number of another type": (lambda mine: setattr(mine, "K", mine.np.float64(2.0)), ["lent_mine.K"]),
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
    "in the place of a builtin": (
        lambda mine: setattr(mine, "len", lambda x: 3),
        ["lent_mine.kinds", "lent_mine.plain"],
    ),
    "builtin function": (lambda mine: setattr(mine, "ACT", torch.tanh), ["lent_mine.ACT"]),
    "builtin of a class": (lambda mine: setattr(mine.Scale, "act", torch.tanh), ["lent_mine.Scale.act"]),
    "static builtin": (lambda mine: setattr(mine.Scale, "bare", staticmethod(torch.tanh)), ["lent_mine.Scale.bare"]),
    "function for a builtin": (lambda mine: setattr(mine, "ACT", mine.helped), ["lent_mine.ACT"]),
    "object for a builtin": (lambda mine: setattr(mine, "ACT", torch.nn.ReLU()), ["lent_mine.ACT"]),
    "function of a C module": (lambda mine: setattr(mine, "ROOT", math.exp), ["lent_mine.ROOT"]),
    "imported function": (lambda mine: setattr(mine, "rgb_to_hsv", mine.neg), ["lent_mine.rgb_to_hsv"]),
    "imported function that a package chose": (elsewhere, []),
    "imported builtin": (lambda mine: setattr(mine, "neg", operator.pos), ["lent_mine.neg"]),
    "alias of an installed function": (lambda mine: setattr(mine, "POOL", mine.F.avg_pool2d), ["lent_mine.POOL"]),
    "operator": (lambda mine: setattr(mine, "OPERATOR", torch.ops.aten.tanh.default), ["lent_mine.OPERATOR"]),
    "ufunc": (lambda mine: setattr(mine, "SINE", mine.np.cos), ["lent_mine.SINE"]),
    "dtype": (lambda mine: setattr(mine, "DTYPE", torch.float16), ["lent_mine.DTYPE"]),
    "dtype as a default": (lambda mine: setattr(mine.kinds, "__defaults__", (torch.half,)), ["lent_mine.kinds"]),
    "device": (lambda mine: setattr(mine, "DEVICE", torch.device("meta")), ["lent_mine.DEVICE"]),
    "set": (lambda mine: setattr(mine, "WHICH", {"b"}), ["lent_mine.WHICH"]),
    "frozenset": (lambda mine: setattr(mine, "DTYPES", frozenset()), ["lent_mine.DTYPES"]),
    "frozenset that is called": (lambda mine: setattr(mine, "WORDS", frozenset("x")), ["lent_mine.WORDS"]),
    "member of an enum": (lambda mine: setattr(mine, "MODE", mine.Mode.MEAN), ["lent_mine.MODE"]),
    "module": (lambda mine: setattr(mine, "np", torch), ["lent_mine.np"]),
    "global under a plain if": (lambda mine: setattr(mine, "PICKED", 2.0), ["lent_mine.PICKED"]),
    "global with a type": (lambda mine: setattr(mine, "PATTERN", torch.tanh), ["lent_mine.PATTERN"]),
    "global by a star": (lambda mine: setattr(mine, "STARRED", 2.0), ["lent_mine.STARRED"]),
    "edited file": (edited, ["lent_mine.Scale.forward"]),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_another_thing_here_is_named(
    mine: Any, anew: Callable[[str], dict[str, str]], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    change, names = CHANGES[kind]
    monkeypatch.setattr(colorsys, "rgb_to_hsv", colorsys.rgb_to_hsv)  # is put back
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
