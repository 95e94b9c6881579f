"""Which modules a source file may import: parsed once per content, remembered in a memo file from run to run.

A file and its module's name arrive, dotted names leave. Nothing is imported. The memo's entries are keyed by the digest
of the file's bytes, so an entry is never out of date; a memo that is lost or damaged costs the time to parse again.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from batch_export.sources.file_digests import file_digest

_FORMAT = f"1 {sys.version_info.major}.{sys.version_info.minor}"
"""Which parser made an entry: a newer Python may read what an older one took for a mistake."""

_ENTRIES_AT_MOST = 20_000


class ImportNames:
    """Names that source files may import.

    Args:
        memo: the file that remembers them; None for none.
    """

    def __init__(self, memo: Path | None = None) -> None:
        self._known = _read(memo)
        self._used: dict[str, tuple[str, ...]] = {}
        self._is_new = False

    def of(self, path: Path, module: str) -> tuple[str, ...]:
        """Returns the names that a file may import, anywhere in it; `from a import b` gives `a` and `a.b`, which may
        be a module.

        Args:
            path: the file.
            module: the name under which it is imported, which relative imports start from.
        """
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        key = f"{_FORMAT} {file_digest(path)} {package}"
        found = self._used.get(key, self._known.get(key))
        if found is None:
            found = tuple(_imports(path.read_bytes(), package))
            self._is_new = True
        self._used[key] = found
        return found

    def news(self) -> dict[str, tuple[str, ...]]:
        """Returns what the memo should hold from now on; nothing when it holds that already."""
        if not self._is_new:
            return {}
        merged = {**self._known, **self._used}
        return merged if len(merged) <= _ENTRIES_AT_MOST else self._used


def _read(memo: Path | None) -> dict[str, tuple[str, ...]]:
    if memo is None:
        return {}
    try:
        return msgspec.json.decode(memo.read_bytes(), type=dict[str, tuple[str, ...]])
    except (OSError, msgspec.MsgspecError):
        return {}


def _imports(source: bytes, package: str) -> dict[str, None]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return {}  # the child that imports it will say where the mistake is
    found: dict[str, None] = {}
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            found.update((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base is not None:
                found[base] = None
                found.update((f"{base}.{alias.name}", None) for alias in node.names if alias.name != "*")
    return found


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yields all statements below a node. Expressions, most of a tree by far, hold none and are not entered."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        members = getattr(node, name, ())
        for member in members if isinstance(members, list) else ():
            yield member
            yield from _statements(member)


def _absolute(node: ast.ImportFrom, package: str) -> str | None:
    if not node.level:
        return node.module
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return None
