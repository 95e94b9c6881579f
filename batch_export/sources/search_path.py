"""The path on which this process began to look for modules, and the folders of packages on it.

Nothing arrives; folders leave. What a model puts on `sys.path` itself is left out: no other process has it there, so
that whoever checks a result could not find its packages. Its files and the names of its metadata count one by one.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache

_CALLED = frozenset({"site-packages", "dist-packages"})
_kept: list[tuple[str, ...]] = []


def keep() -> None:
    """Says that what is put on `sys.path` from now on is put there by a model; called by who watches one."""
    _kept[:] = [tuple(sys.path)]


def search_path() -> tuple[str, ...]:
    """Returns `sys.path`, as it was when a model began."""
    return _kept[0] if _kept else tuple(sys.path)


def package_folders() -> tuple[str, ...]:
    """Returns the folders on the path that have the name of folders of packages, as written and without links.

    A folder within such a folder stands for all of that.
    """
    return _package_folders(search_path())


@lru_cache(maxsize=16)
def _package_folders(path: tuple[str, ...]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for entry in path:
        for folder in (os.path.abspath(entry), os.path.realpath(entry)):
            parts = folder.split(os.sep)
            ends = [place for place, part in enumerate(parts, 1) if part in _CALLED]
            if ends:
                found[os.sep.join(parts[: ends[0]])] = None
    return tuple(found)
