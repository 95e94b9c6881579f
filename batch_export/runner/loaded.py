"""Which local files a child has really loaded: modules, and data files that were opened for reading. Like a depfile.

Roots arrive, `(name, digest)` pairs leave. Installed in a child before the model's builder runs; it watches and never
forbids anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from batch_export.digest import Digest
from batch_export.import_names import file_digest
from batch_export.packaging_paths import models_dir
from batch_export.sources import is_installed, relative_name

_DERIVED_SUFFIXES = (".pyc", ".pyo", ".lock", ".log")


class LoadedFiles:
    """Watches the files that this process opens.

    Args:
        roots: folders of local modules.
        ignored: folders that are not sources (the store, the run's own folder).
        installed: files known to be of installed packages, see `installed_modules`.
    """

    def __init__(self, roots: Sequence[Path], ignored: Sequence[Path], installed: Collection[str] = ()) -> None:
        self._roots = tuple(roots)
        self._ignored = tuple(str(folder) + os.sep for folder in ignored)
        folders = [models_dir(), *(root for root in roots if len(root.parts) > 1)]
        self._prefixes = tuple(str(folder) + os.sep for folder in folders)
        self._opened: set[str] = set()
        self._installed = set(installed)

    def watch(self) -> None:
        """Starts watching; there is no way to stop (Python's audit hooks stay)."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open":
            return
        path, mode, flags = arguments
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if not isinstance(path, str | os.PathLike):
            return
        reading = not set(mode) & set("wax+") if isinstance(mode, str) else not (flags or 0) & (os.O_WRONLY | os.O_RDWR)
        if reading:
            self._opened.add(os.path.abspath(path))

    def sources(self) -> tuple[tuple[str, Digest], ...]:
        """Returns the local files loaded so far, by their names relative to their roots, sorted."""
        found: dict[str, Digest] = {}
        folders = cache(_real_folder)  # thousands of modules lie in some hundred folders
        for name in sorted((_module_files() | self._opened) - self._installed):
            if not self._may_be_local(name):
                continue
            folder, file = os.path.split(name)
            real, installed = folders(folder)
            if installed and not os.path.islink(name):
                self._installed.add(name)
                continue
            path = Path(os.path.realpath(os.path.join(real, file)))
            relative = relative_name(path, self._roots)
            if relative is not None and path.is_file():
                found[relative] = file_digest(path)
        return tuple(sorted(found.items()))

    def _may_be_local(self, name: str) -> bool:
        if name.endswith(_DERIVED_SUFFIXES) or name.startswith(self._ignored):
            return False
        return name.startswith(self._prefixes)


def installed_modules() -> frozenset[str]:
    """Returns the files of the modules loaded so far that came with installed packages, not through links."""
    folders = cache(_real_folder)
    names = _module_files()
    return frozenset(name for name in names if folders(os.path.dirname(name))[1] and not os.path.islink(name))


def _module_files() -> set[str]:
    return {os.path.abspath(name) for name in map(_file_of, list(sys.modules.values())) if name}


def _real_folder(name: str) -> tuple[str, bool]:
    """Returns a folder without symlinks, and whether it is one of installed packages."""
    real = os.path.realpath(name)
    return real, is_installed(Path(real))


def _file_of(module: Any) -> str | None:
    try:
        name = module.__file__
    except Exception:  # modules may be lazy objects whose attributes raise
        return None
    return name if isinstance(name, str) else None
