"""Which files of installed packages a child has opened: those that are no modules of its own (a package's data, a
library that C code loads, all of a package that only holds data), and those that no metadata lists.

Paths that were opened and the files of modules arrive; files leave, whose owners' versions then count, and those that
no distribution lists, which count one by one. Whose the modules are imports tell (`used_packages.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from importlib.machinery import all_suffixes

from batch_export.runner.opened import is_of_package
from batch_export.sources import distributions
from batch_export.sources.toolchain import DISTRIBUTIONS

_OF_MODULES = (*all_suffixes(), ".so")
_BY_VERSION = frozenset(map(distributions.normal, DISTRIBUTIONS))
"""Whose modules count by the version alone."""


class OpenedOfPackages:
    """Looks at each path once, however many steps of a child ask."""

    def __init__(self) -> None:
        self._looked_at: set[str] = set()
        self._owned: set[str] = set()
        self.unlisted: dict[str, str] = {}
        """Files that no distribution lists, but for modules of packages that none owns: path -> as it was opened."""

    def look(
        self, opened: Collection[str], modules: Collection[str], real_folder: Callable[[str], str]
    ) -> frozenset[str]:
        """Returns the files of packages, no modules', that have been opened so far.

        Args:
            opened: paths that were opened.
            modules: files of the modules of this process.
            real_folder: returns a folder without links.
        """
        for name in set(opened) - self._looked_at:
            self._looked_at.add(name)
            folder, file = os.path.split(name)
            for path in {name, os.path.join(real_folder(folder), file)}:
                if not is_of_package(path):
                    continue
                if path in modules or distributions.source_of(path) in modules:
                    self._take_module(path if path in modules else distributions.source_of(path))
                elif os.path.isfile(path):
                    self._take(path, name)
        return frozenset(self._owned)

    def _take_module(self, path: str) -> None:
        """Takes a module that its owner does not list: it was made or put there after the installation."""
        owners = distributions.owners_of_files([path])
        if owners and not (owners & _BY_VERSION or self._is_whole(owners) or distributions.lists(path)):
            self.unlisted[path] = path

    def _take(self, path: str, name: str) -> None:
        owners = distributions.owners_of_files([path])
        if any(owner.startswith(distributions.WITHOUT_METADATA) for owner in owners) and not path.endswith(_OF_MODULES):
            self.unlisted[path] = name
        elif owners:
            self._owned.add(path)
            if not _is_bytecode(path) and not self._is_whole(owners) and not distributions.lists(path):
                self.unlisted[path] = name  # made or fetched after the installation

    @staticmethod
    def _is_whole(owners: Collection[str]) -> bool:
        """Whether all files are in the state of their owner."""
        return any(owner.startswith(distributions.WITHOUT_METADATA) for owner in owners)


def _is_bytecode(path: str) -> bool:
    return os.path.basename(os.path.dirname(path)) == "__pycache__"
