"""The path on which this process began to look for modules, and the folders of packages on it.

Nothing arrives; folders leave. What a model puts on `sys.path` itself is left out: no other process has it there, so
that whoever checks a result could not find its packages. Its files and the names of its metadata count one by one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import lru_cache

_CALLED = frozenset({"site-packages", "dist-packages"})
_kept: list[tuple[str, ...]] = []


def keep() -> None:
    """Says that what is put on `sys.path` from now on is put there by a model; called by who watches one."""
    _kept[:] = [tuple(sys.path)]


def search_path() -> tuple[str, ...]:
    """Returns `sys.path`, as it was when a model began."""
    return _kept[0] if _kept else tuple(sys.path)


def path_of_children(roots: Sequence[str]) -> str:
    """Returns `PYTHONPATH` for children: the roots, and what else is in ours (archives, folders of packages) in its
    place among them.

    Args:
        roots: folders of local modules, in import order, without links; the current one is first.
    """
    inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    real = [os.path.realpath(entry) for entry in inherited]
    found = list(roots)
    for place, entry in enumerate(inherited):
        if real[place] not in roots and entry not in found:
            before = [found.index(one) + 1 for one in (*real[:place], *inherited[:place]) if one in found]
            behind = [found.index(one) for one in real[place + 1 :] if one in found]
            found.insert(max(before) if before else max(1, min(behind, default=len(found))), entry)
    return os.pathsep.join(dict.fromkeys([*found, *inherited]))


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
