"""Which installed distributions a model's step used: those of the modules that the child imported for it.

What was preloaded for another model's sake does not count, and neither does what the runner imports for itself, unless
the model's own sources name it. The versions of the toolchain are in the keys by name. Names and states leave.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from batch_export.runner.module_files import file_of
from batch_export.runner.preload import CORE, TORCH
from batch_export.runner.preloaded import Preloaded, owners_of
from batch_export.sources import distributions, editable_maps, start_up
from batch_export.sources.closure import is_installed
from batch_export.sources.import_names import ImportNames
from batch_export.sources.module_forms import module_of
from batch_export.sources.places import resolve_target
from batch_export.sources.toolchain import DISTRIBUTIONS

_OURS = "batch_export"
_IN_ALL_KEYS = frozenset({"torch", "numpy"})
_IN_KEYS = frozenset(map(distributions.normal, DISTRIBUTIONS))


class UsedPackages:
    """Returns the distributions that count for one child's model.

    Args:
        preloaded: what this process had imported when it was forked.
        names: knows what source files import.
    """

    def __init__(self, preloaded: Preloaded, names: ImportNames) -> None:
        self._preloaded = preloaded
        self._names = names
        self._before = frozenset(sys.modules)
        self._counted: set[str] = set()
        self._aside: set[str] = set()
        self._named: set[str] = set()

    def set_aside(self) -> None:
        """Says that what was imported since the model's last step is not the model's."""
        self._aside |= set(sys.modules) - self._before - self._counted

    def packages(
        self,
        targets: Collection[str],
        requires: Collection[str],
        local: Mapping[str, str],
        elsewhere: Collection[str] = (),
        sought: Collection[str] = (),
    ) -> tuple[tuple[str, str], ...]:
        """Returns names and states of the distributions that count, sorted by name.

        Args:
            targets: the builder and the exporter, as configs write them.
            requires: what the model's config says that it needs.
            local: the local modules, name -> file.
            elsewhere: files of packages that processes opened which this one started.
            sought: top-level modules and packages that were looked for and not imported.
        """
        named = {resolve_target(target)[0].partition(".")[0] for target in targets} | set(requires)
        for module, file in local.items():
            named |= {name.partition(".")[0] for name in self._imports(Path(file), module)}
        named -= {_OURS, *_IN_ALL_KEYS}
        new = set(sys.modules) - self._before - self._aside
        self._counted |= new
        explicit = owners_of(name for name in sys.modules if name.partition(".")[0] in named)
        found = (owners_of(new) | self._preloaded_for(named | {name.partition(".")[0] for name in new})) - _IN_KEYS
        found |= explicit | (distributions.owners_of_files(elsewhere) - _IN_ALL_KEYS)
        found |= owners_of(start_up.modules()) - _IN_KEYS
        found -= {distributions.normal(_OURS), *(distributions.WITHOUT_METADATA + name for name in start_up.MODULES)}
        states = {
            name: distributions.state(name) for name in {*found, *map(distributions.FORM.__add__, self._within())}
        }
        states |= {distributions.WITHOUT_METADATA + top: distributions.ABSENT for top in named if _is_absent(top)}
        tops = {name.partition(".")[0] for name in (*local, *self._counted)}
        without_file = {top for top in tops if file_of(top) is None}
        if any(map(_is_found_by_others, tops)) or any(map(editable_maps.place_of, {*sought, *without_file})):
            states |= {name: distributions.state(name) for name in map(_module, _editable_finders())}
        return tuple(sorted(states.items()))

    def tops(self, local: Collection[str]) -> set[str]:
        """Returns the top-level modules and packages that were imported for the model; after `packages`.

        Args:
            local: names of local modules, which are left out.
        """
        return {name.partition(".")[0] for name in self._counted} - {name.partition(".")[0] for name in (*local, _OURS)}

    def _preloaded_for(self, tops: set[str]) -> set[str]:
        """The owners of what was preloaded for models that use `tops`, or packages that ask for them."""
        found: set[str] = set()
        for entry, owners in self._preloaded.owners.items():
            if entry == CORE:
                continue
            if entry == TORCH or entry.partition(".")[0] in tops or self._is_asked_for(entry, tops):
                found |= owners
        return found

    def _is_asked_for(self, entry: str, tops: set[str]) -> bool:
        library = distributions.normal(entry.partition(".")[0])
        installed = owners_of(name for name in sys.modules if name.partition(".")[0] in tops)
        return any(library in distributions.requirements(name) for name in installed - _IN_KEYS)

    def _imports(self, file: Path, module: str) -> tuple[str, ...]:
        try:
            names = self._names.of(file, module)
        except OSError:
            return ()  # it was removed meanwhile
        self._named.update(names)
        return names

    def _within(self) -> set[str]:
        """The modules within installed packages that the model's sources name, and packages without a file there.

        Those of packages whose versions alone count are left out.
        """
        loaded = {name: file_of(name) for name in self._named if name in sys.modules}
        aside = {_OURS, *_IN_KEYS, *sys.stdlib_module_names}
        return {
            name
            for name, file in loaded.items()
            if distributions.normal(name.partition(".")[0]) not in aside
            and ((is_installed(file) and "." in name) if file else distributions.is_there(name))
        }


def _is_found_by_others(top: str) -> bool:
    """Whether a package that is no installed one lies in no folder on the path: an editable install's finder has it."""
    file = file_of(top)
    if file is None or is_installed(file) or top == _OURS:
        return False
    home = os.path.abspath(os.path.dirname(module_of(file) or file))
    return home not in {os.path.abspath(entry) for entry in sys.path}


def _editable_finders() -> set[str]:
    """The modules by which editable installs have their packages found, which say where these lie."""
    names = {name for name in list(sys.modules) if "editable" in name and "." not in name}
    return {name for name in names if is_installed(file_of(name) or os.sep)}


def _module(name: str) -> str:
    return distributions.WITHOUT_METADATA + name


def _is_absent(top: str) -> bool:
    if top in sys.modules or top in sys.stdlib_module_names:
        return False
    try:
        return PathFinder.find_spec(top) is None and editable_maps.place_of(top) is None
    except (ImportError, ValueError, AttributeError):
        return True
