"""Whether a function is another one in this process than where its file is imported anew, as children do.

Texts of two processes arrive (`stages/code_state.py`), names leave. Code and defaults are compared, and plain values
that a file gives once and for all: not what the code sets itself as it runs (caches, counters), and not what a call
gives, which may be another thing in each process (times, seeds).
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from batch_export.stages.code_state import CLASS, CODE, MOST, OPTIMISED, PLAIN, UNCERTAIN

_OF_PROCESSES = frozenset({"os", "sys", "__file__", "__name__"})
_DEEPEST = 5


def changed_here(here: Mapping[str, str], anew: Mapping[str, str]) -> list[str]:
    """Returns the names of what is another thing here, sorted.

    Args:
        here: texts by name in this process.
        anew: the same in a process that has imported the files just now.
    """
    if here.get(OPTIMISED) != anew.get(OPTIMISED):
        return []
    other = [name for name in anew if name in here and here[name] != anew[name]]
    own = _methods_of_one_side(here, anew)
    sources = _Sources()
    stored = {one for module in {*map(_module_of, anew)} if other or own for one in sources.stored(module)}
    told = (name for name in (*other, *own) if name.rpartition(".")[2] not in stored)
    return sorted(name for name in told if name in own or _is_another(anew[name], here[name], name, sources))


def _methods_of_one_side(here: Mapping[str, str], anew: Mapping[str, str]) -> set[str]:
    """Methods that a class has in one of the processes alone: added over one that it inherits, or taken away."""
    if max(len(here), len(anew)) >= MOST:  # not all was looked at
        return set()
    classes = {text.split(" ")[1] for name, text in anew.items() if text.startswith(CLASS) and here.get(name) == text}
    return {
        name
        for name in here.keys() ^ anew.keys()
        if name.rpartition(".")[0] in classes and here.get(name, anew.get(name, "")).startswith(CODE)
    }


def _is_another(before: str, now: str, name: str, sources: _Sources) -> bool:
    kind, *words = before.split(" ")
    if kind == CODE and now.startswith(f"{CODE} "):
        of_now = now.split(" ")[1:]
        return words[0] != of_now[0] or UNCERTAIN not in (words[-1], of_now[-1])
    if kind == PLAIN:
        module = _module_of(name)
        return now.startswith(f"{PLAIN} ") and sources.is_fixed(module, name.removeprefix(f"{module}.").split("."))
    return bool(words)


def _module_of(name: str) -> str:
    """The module that holds a name; empty where none does."""
    parent = name.rpartition(".")[0]
    while parent and parent not in sys.modules:
        parent = parent.rpartition(".")[0]
    return parent


class _Sources:
    """The sources of this process' modules, each parsed once."""

    def __init__(self) -> None:
        self._trees: dict[str, ast.Module] = {}

    def stored(self, module: str) -> Iterator[str]:
        """Yields the names that a module's code sets as it runs: globals, and attributes of anything but `self`."""
        for node in ast.walk(self._tree(module)):
            if isinstance(node, ast.Global):
                yield from node.names
            elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and not _is_self(node.value):
                yield node.attr

    def is_fixed(self, module: str, inner: list[str], depth: int = 0) -> bool:
        """Whether a value is written in its module, by expressions that give the same in each process.

        Args:
            module: its name.
            inner: the names of the classes that hold the value, and its own.
            depth: how many modules have handed it on.
        """
        body: list[ast.stmt] = self._tree(module).body
        for outer in inner[:-1]:
            body = [
                part for node in body if isinstance(node, ast.ClassDef) and node.name == outer for part in node.body
            ]
        name, is_fixed = inner[-1], False
        for node in body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        home = _absolute(node, module)
                        if (
                            home not in sys.modules
                            or depth > _DEEPEST
                            or not self.is_fixed(home, [alias.name], depth + 1)
                        ):
                            return False
                        is_fixed = True
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                if name in _set_in(node):
                    if node.value is None or not _is_same_everywhere(node.value):
                        return False
                    is_fixed = True
            elif not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and name in _set_in(node):
                return False  # which way is taken may be another thing in each process
        return is_fixed

    def _tree(self, module: str) -> ast.Module:
        if module not in self._trees:
            try:
                self._trees[module] = ast.parse(Path(str(sys.modules[module].__file__)).read_bytes())
            except (OSError, SyntaxError, ValueError, KeyError, AttributeError):
                self._trees[module] = ast.Module([], [])
        return self._trees[module]


def _absolute(node: ast.ImportFrom, module: str) -> str:
    package = getattr(sys.modules.get(module), "__package__", None) or ""
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return ""


def _set_in(node: ast.stmt) -> set[str]:
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return found | {one.asname or one.name for one in ast.walk(node) if isinstance(one, ast.alias)}


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "self"


def _is_same_everywhere(value: ast.expr) -> bool:
    return not any(
        isinstance(one, ast.Call) or (isinstance(one, ast.Name) and one.id in _OF_PROCESSES) for one in ast.walk(value)
    )
