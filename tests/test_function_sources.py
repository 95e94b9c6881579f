"""The tree of a running function is found whatever its length, its own name and its constants."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from batch_export.exporter.capture.function_sources import compiled, is_current, tree_of

HEAD = "import torch\nfrom torch import nn\n"


def _module(path: Path, text: str) -> Any:
    path.write_text(HEAD + text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


def test_a_loop_of_any_length_has_a_tree(tmp_path: Path) -> None:
    """How far its jumps go takes one instruction more from some length on, which differs by how torch is imported."""
    functions = [
        f"def f{count}(x, n):\n    for t in range(n):\n" + "        x = torch.tanh(x * t)\n" * count + "    return x\n"
        for count in range(1, 60)
    ]
    made = _module(tmp_path / "loops_of_any_length.py", "\n".join(functions))
    left = [name for name, one in vars(made).items() if isinstance(one, FunctionType) and tree_of(one.__code__) is None]
    assert left == []


TEXTS = {
    "recursive": "def recursive(x, n):\n    return x if n == 0 else recursive(x * 2, n - 1)\n",
    "among": "def among(x, kind):\n    return x * 3 if kind in {'zeros', 'reflect', 'circular', 'edge'} else x\n",
    "outer": "def outer(x):\n    def inner(n):\n        return inner(n - 1) * 2 if n else x\n    return inner(3)\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_function_has_a_tree_and_a_code_of_it_does_the_same(name: str, tmp_path: Path) -> None:
    function = getattr(_module(tmp_path / f"text_of_{name}.py", TEXTS[name]), name)
    tree = tree_of(function.__code__)
    assert tree is not None
    given = {"recursive": (3, 4), "among": (3, "reflect"), "outer": (3,)}[name]
    expected = function(*given)
    code = compiled(tree, function.__code__)
    assert code is not None
    function.__code__ = code
    assert function(*given) == expected


def test_an_assert_that_pytest_has_rewritten_is_still_what_the_file_says() -> None:
    def asserting(x: int) -> int:
        assert x > 0, f"{x} is too small"
        return x * 2

    assert "@pytest_ar" in asserting.__code__.co_names
    tree = tree_of(asserting.__code__)
    assert tree is not None
    code = compiled(tree, asserting.__code__)
    assert code is not None
    asserting.__code__ = code
    assert asserting(3) == 6


NESTED = """
class Holder:
    def made(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()

            def forward(self, x):
                return x * 2

        def twice(x):
            return x * 2

        return Model, twice
"""


def test_classes_that_a_function_defines_keep_their_names(tmp_path: Path) -> None:
    holder = _module(tmp_path / "nested_classes.py", NESTED).Holder
    code = holder.made.__code__
    assert is_current(code)
    tree = tree_of(code)
    assert tree is not None
    expected = [one.__qualname__ for one in holder().made()]
    other = compiled(tree, code)
    assert other is not None
    holder.made.__code__ = other
    assert [one.__qualname__ for one in holder().made()] == expected


def test_a_file_that_says_something_else_by_now_gives_no_code(tmp_path: Path) -> None:
    path = tmp_path / "changed_since.py"
    code = _module(path, "def own(x):\n    return x * 2\n").own.__code__
    assert is_current(code)
    path.write_text(HEAD + "def own(x):\n    return x * 3\n", encoding="utf-8")
    assert not is_current(code)
    tree = tree_of(code)
    assert tree is not None
    assert compiled(tree, code) is None
