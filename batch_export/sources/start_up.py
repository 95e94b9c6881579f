"""What every start of Python executes before a program: `sitecustomize`, `usercustomize`, lines of `.pth` files.

It may change what any model computes, and nothing imports it by name. Names and short texts leave; what lies in folders
of local modules is left to those who look at these.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from itertools import takewhile
from pathlib import Path

from batch_export.digest import digest_value
from batch_export.sources.closure import is_installed
from batch_export.sources.file_digests import file_digest, folder_digest
from batch_export.sources.search_path import search_path

ABSENT = "absent"
MODULES = ("sitecustomize", "usercustomize")
PREFIX = "start-up:"
"""Begins the names; none of a distribution has a colon."""
_LINES = "lines in .pth files"
NAMES = (*(PREFIX + name for name in MODULES), PREFIX + _LINES)
_FINDERS = re.compile(r"\b(?:__editable__|_distutils_hack\b|_virtualenv\b)")
"""Modules that setuptools and virtualenv start everywhere. They find modules, whose files count by themselves."""


@cache
def state(name: str, aside: str = "") -> str:
    """Returns the state of what one of `NAMES` stands for, `absent` or its content, as it was at the first look.

    Args:
        name: one of `NAMES`.
        aside: a folder in which nothing is looked for.
    """
    what = name.removeprefix(PREFIX)
    if what == _LINES:
        lines = sorted(_lines(aside))
        return f"content {digest_value(lines)[:16]}" if lines else ABSENT
    spec = PathFinder.find_spec(what, _installed(search_path(), aside))
    if spec is None:
        return ABSENT
    try:
        folders = [folder_digest(Path(place)) for place in spec.submodule_search_locations or ()]
        return f"content {digest_value(folders or file_digest(Path(spec.origin or '')))[:16]}"
    except OSError as error:
        return f"unreadable: {error.strerror}"


def modules() -> list[str]:
    """Returns the modules that were imported in this process before the program, but for those that find modules."""
    names = takewhile(lambda name: name.partition(".")[0] != __name__.partition(".")[0], list(sys.modules))
    return [name for name in names if not _FINDERS.match(name)]


@cache
def _installed(path: tuple[str, ...], aside: str) -> list[str]:
    return [one for one in path if is_installed(Path(os.path.realpath(one))) and not _is_in(one, aside)]


def _lines(aside: str) -> Iterator[str]:
    for folder in _installed(search_path(), aside):
        try:
            files = [name for name in os.listdir(folder) if name.endswith(".pth") and not name.startswith(".")]
        except OSError:
            continue
        for name in files:
            yield from _executed(Path(folder, name))


def _executed(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.startswith(("import ", "import\t")) and not _FINDERS.search(line)]


def _is_in(path: str, folder: str) -> bool:
    return bool(folder) and f"{path}{os.sep}".startswith(f"{folder}{os.sep}")
