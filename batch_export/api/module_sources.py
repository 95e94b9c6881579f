"""What the sources of this process' modules say of a name: whether its value is written down, set later, or filled.

Names of modules and of what they hold arrive. Sources are parsed, nothing is run.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from batch_export.stages.code_state import is_local, text_of

_OF_PROCESSES = frozenset({"os", "sys", "__file__", "__name__"})
_OF_NAMES = frozenset({"staticmethod"})
_OF_LITERALS = frozenset({"set", "frozenset", "torch.device"})
"""Calls that give the same in each process: of anything that does, and of what is written in the call itself."""
_DEEPEST = 5


def module_of(name: str) -> str:
    """The module that holds a name; empty where none does."""
    parent = name.rpartition(".")[0]
    while parent and parent not in sys.modules:
        parent = parent.rpartition(".")[0]
    return parent


class Sources:
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

    def is_as_installed(self, module: str, name: str, text: str) -> bool:
        """Whether a text is of what an installed package gives this process by the module's `from PACKAGE import`.

        Some give other classes where they run elsewhere: bars of progress do in notebooks.
        """
        for node in _taken(self._tree(module).body):
            if isinstance(node, ast.ImportFrom) and not is_local(_absolute(node, module)):
                home = sys.modules.get(_absolute(node, module))
                held = {} if home is None else vars(home)
                brought = [alias.name for alias in node.names if (alias.asname or alias.name) == name]
                if any(one in held and text_of(held[one]) == text for one in brought):
                    return True
        return False

    def is_only_asked(self, name: str, modules: Iterable[str]) -> bool:
        """Whether modules ask a set of that name for what it holds (`x in NAMES`), and do nothing else with it."""
        used, asked = set[ast.expr](), set[ast.expr]()
        for node in (node for module in modules for node in ast.walk(self._tree(module))):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                used |= {node} if name in (getattr(node, "id", ""), getattr(node, "attr", "")) else set()
            elif isinstance(node, ast.Compare) and all(isinstance(one, (ast.In, ast.NotIn)) for one in node.ops):
                asked.update(node.comparators)
        return used <= asked

    def is_fixed(self, module: str, inner: list[str], depth: int = 0, *, installed: bool = False) -> bool:
        """Whether a value is written in its module, by expressions that give the same in each process.

        Args:
            module: its name.
            inner: the names of the classes that hold the value, and its own.
            depth: how many modules have handed it on.
            installed: whether what an installed package brings, by an import at the top, is fixed.
        """
        body = _taken(self._tree(module).body)
        for outer in inner[:-1]:
            body = [
                part
                for node in body
                if isinstance(node, ast.ClassDef) and node.name == outer
                for part in _taken(node.body)
            ]
        name, is_fixed = inner[-1], False
        for node in body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    home = _absolute(node, module)
                    brings_all = alias.name == "*" and home in sys.modules and name in vars(sys.modules[home])
                    if brings_all or (alias.asname or alias.name) == name:
                        if not self._is_handed_on(home, name if brings_all else alias.name, depth, installed):
                            return False
                        is_fixed = True
            elif isinstance(node, ast.Import):
                is_fixed |= name in {alias.asname or alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
                if name in _set_in(node):
                    if node.value is None or not _is_same_everywhere(node.value):
                        return False
                    if not all(self._is_known(module, one, depth) for one in _read_in(node.value) - _set_in(node)):
                        return False
                    is_fixed = True
            elif not isinstance(node, (ast.FunctionDef, ast.ClassDef)) and name in _set_in(node):
                return False  # which way is taken may be another thing in each process
        return is_fixed

    def _is_known(self, module: str, name: str, depth: int) -> bool:
        """Whether a name that an expression reads is none that its module sets, or itself fixed."""
        nodes = (one for one in _taken(self._tree(module).body) if not isinstance(one, (ast.FunctionDef, ast.ClassDef)))
        if depth > _DEEPEST or not any(name in _set_in(node) for node in nodes):
            return True
        return self.is_fixed(module, [name], depth + 1, installed=True)

    def _is_handed_on(self, home: str, name: str, depth: int, installed: bool) -> bool:
        if home not in sys.modules or depth > _DEEPEST:
            return False
        if f"{home}.{name}" in sys.modules:  # a module of a package
            return True
        if not is_local(home):
            return installed or self.is_fixed(home, [name], depth + 1)
        return name not in {*self.stored(home)} and self.is_fixed(home, [name], depth + 1, installed=installed)

    def _tree(self, module: str) -> ast.Module:
        if module not in self._trees:
            try:
                self._trees[module] = ast.parse(Path(str(sys.modules[module].__file__)).read_bytes())
            except (OSError, SyntaxError, ValueError, KeyError, AttributeError):
                self._trees[module] = ast.Module([], [])
        return self._trees[module]


def _taken(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements with what stands under a plain `if True:` in its place."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Constant):
            found.extend(_taken(node.body if node.test.value else node.orelse))
        else:
            found.append(node)
    return found


def _absolute(node: ast.ImportFrom, module: str) -> str:
    package = getattr(sys.modules.get(module), "__package__", None) or ""
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return ""


def _set_in(node: ast.stmt) -> set[str]:
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return found | {one.asname or one.name for one in ast.walk(node) if isinstance(one, ast.alias)}


def _read_in(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "self"


def _is_same_everywhere(value: ast.expr) -> bool:
    return not any(
        (isinstance(one, ast.Call) and not _gives_the_same(one))
        or (isinstance(one, ast.Name) and one.id in _OF_PROCESSES)
        for one in ast.walk(value)
    )


def _gives_the_same(call: ast.Call) -> bool:
    function = ast.unparse(call.func)
    written = all(isinstance(one, (ast.Constant, ast.Set, ast.List, ast.Tuple)) for one in call.args)
    return function in _OF_NAMES or (function in _OF_LITERALS and written and not call.keywords)
