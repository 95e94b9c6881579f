"""What the forkserver had imported when it forked a child, and for whose sake.

Names of preloaded entries arrive one after another as they are imported, sets of module names leave. Without a
forkserver it is empty.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from batch_export.runner.module_files import file_of, installed_modules
from batch_export.sources import distributions
from batch_export.sources.closure import is_installed


class Preloaded:
    """Modules by the preloaded entry (see `preload.py`) that brought them.

    Attributes:
        environment: the environment variables before the first entry, which may set some.
        variables: the names of those that were read meanwhile, where somebody has watched.
        own: what the process had imported before the first entry: this program's own needs.
        brought: entry -> modules that it brought.
        files: files of all these modules that came with installed packages.
        owners: entry -> the distributions of what it brought.
    """

    def __init__(self) -> None:
        self.own = frozenset(sys.modules)
        self.environment = dict(os.environ)
        self.variables: set[str] = set()
        self.brought: dict[str, frozenset[str]] = {}
        self.files: frozenset[str] = frozenset()
        self.owners: dict[str, set[str]] = {}

    def note(self, entry: str) -> None:
        """Takes down what an entry brought; called right after it was preloaded."""
        self.brought[entry] = frozenset(sys.modules) - self.all()

    def finish(self) -> None:
        """Takes down files and owners, so that no child has to; called after the last entry."""
        self.files = installed_modules()
        self.owners = {entry: owners_of(modules) for entry, modules in self.brought.items()}

    def tops(self) -> frozenset[str]:
        """Returns the names of the top-level packages."""
        return frozenset(name.partition(".")[0] for name in self.all())

    def all(self) -> frozenset[str]:
        """Returns the names of all modules."""
        return self.own.union(*self.brought.values())


def owners_of(modules: Iterable[str]) -> set[str]:
    """Returns the distributions of modules, by name; those of the standard library and local ones have none."""
    found: list[tuple[str, str]] = []
    done: set[str] = set()
    for name in modules:
        top = name.partition(".")[0]
        if top in done or top in sys.stdlib_module_names:
            continue
        file = file_of(name)
        if file is not None and is_installed(Path(file)):
            found.append((name, file))
            if file_of(top) is not None:
                done.add(top)  # all of it lies in one folder; a namespace's parts may have several owners
    return distributions.owners(found)
