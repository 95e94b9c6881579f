"""Which of the files and folders of one name an import takes: `sop.so` before `sop.py`, a package before both.

Names of modules as paths without an ending arrive (`package/sop`), short texts leave. Python lists a folder once and
takes what is first in its own order, so that nobody is seen to look for what is not there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import lru_cache
from importlib.machinery import BYTECODE_SUFFIXES, EXTENSION_SUFFIXES, SOURCE_SUFFIXES

from batch_export.sources.places import ZOO_PACKAGE, models_dir

_ENDINGS = (*EXTENSION_SUFFIXES, *SOURCE_SUFFIXES, *BYTECODE_SUFFIXES)
"""In the order in which an import tries them."""
_LONGEST_FIRST = sorted(_ENDINGS, key=len, reverse=True)
_PACKAGE = "__init__"
_FOUND, NOTHING = "module ", "no module"
_SETTLED_NS = 2_000_000_000


def module_of(file: str) -> str | None:
    """Returns the name of the module that a file holds, as a path without an ending; None where it is no module's."""
    ending = next((one for one in _LONGEST_FIRST if file.endswith(one)), None)
    if ending is None:
        return None
    module = file[: -len(ending)]
    folder, name = os.path.split(module)
    return folder if name == _PACKAGE else module


def is_of_module(state: str) -> bool:
    """Whether it is what `ModuleStates.of` returns."""
    return state == NOTHING or state.startswith(_FOUND)


def is_found(state: str) -> bool:
    """Whether that says that there is a module."""
    return state.startswith(_FOUND)


class ModuleStates:
    """Tells what imports take at one moment: each folder is looked at once.

    Args:
        roots: folders of local modules, in the order of the path.
    """

    def __init__(self, roots: Sequence[os.PathLike[str]]) -> None:
        self._roots = tuple(map(os.fspath, roots))
        self._names: dict[str, frozenset[str]] = {}

    def of(self, name: str) -> str:
        """Returns what an import takes: in the first root that has a module of that name, or at its absolute path.

        A folder without a file of its own (a namespace) counts as nothing: it is taken where nothing else is anywhere.
        """
        above, _, file = name.rpartition(os.sep)
        if os.path.isabs(name):
            folders = [above or os.sep]
        elif name.startswith(f"{ZOO_PACKAGE}/"):
            folders = [f"{models_dir()}{above.removeprefix(ZOO_PACKAGE)}"]
        else:
            folders = [_joined(root, above) for root in self._roots]
        for folder in folders:
            form = self._form(folder, file)
            if form is not None:
                return f"{_FOUND}{file}{form}"
        return NOTHING

    def home(self, name: str) -> str | None:
        """Returns the first root that has a module of that name."""
        above, _, file = name.rpartition(os.sep)
        return next((root for root in self._roots if self._form(_joined(root, above), file) is not None), None)

    def _form(self, folder: str, name: str) -> str | None:
        beside = self._names_in(folder)
        if name in beside:
            within = self._names_in(f"{folder}/{name}")
            for ending in _ENDINGS:
                if _PACKAGE + ending in within:
                    return f"/{_PACKAGE}{ending}"
        for ending in _ENDINGS:
            if name + ending in beside:
                return ending
        return None

    def _names_in(self, folder: str) -> frozenset[str]:
        if folder not in self._names:
            self._names[folder] = _names_in(folder)
        return self._names[folder]


def _joined(root: str, above: str) -> str:
    return f"{root}/{above}" if above else root


def _names_in(folder: str) -> frozenset[str]:
    try:
        status = os.stat(folder)
        if time.time_ns() - status.st_mtime_ns < _SETTLED_NS:  # a name may come without the folder's time changing
            return frozenset(os.listdir(folder))
        return _listed(folder, status.st_mtime_ns, status.st_ino)
    except OSError:
        return frozenset()


@lru_cache(maxsize=4096)
def _listed(folder: str, _changed: int, _inode: int) -> frozenset[str]:
    return frozenset(os.listdir(folder))
