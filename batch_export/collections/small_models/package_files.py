"""Reading what an installed package's own files say, without importing it.

A package's name arrives; its folder, text and classes leave. torch is never imported.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path


def folder(package: str) -> Path:
    """Returns the folder of an installed package.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        raise ModuleNotFoundError(f"{package} is not installed", name=package)
    return Path(spec.origin).parent


@cache
def text(path: Path) -> str:
    """Returns a source file's text; none where there is no such file."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def names_imported(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the relative module and the name of each `from .module import name` at the top of a file."""
    for node in ast.parse(text(path)).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            for alias in node.names:
                yield node.module, alias.name


def bases(path: Path, name: str) -> tuple[str, ...] | None:
    """Returns the bases of a class as a file writes them, without packages; None where the file has no such class."""
    found = re.search(rf"^class {re.escape(name)}(?:\(([^)]*)\))?:", text(path), re.MULTILINE)
    if found is None:
        return None
    written = re.sub(r"\[.*?\]", "", found[1] or "")
    return tuple(base.strip().rpartition(".")[2] for base in written.split(",") if base.strip())
