"""Which of the paths that somebody asked about, or looked for as a module, count, and as what.

Notes arrive, `(name, state)` pairs leave, see `asked.py`. What the content of a recorded file implies is left out.
"""

from __future__ import annotations

import functools
import os
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from batch_export.digest import Digest
from batch_export.runner.askers import Askers
from batch_export.runner.forked_notes import ForkedNotes
from batch_export.runner.opened import Opened
from batch_export.sources.asked import ABSENT, How, follows_from_content, of_a_step, without_size
from batch_export.sources.closure import is_installed
from batch_export.sources.module_forms import module_of
from batch_export.sources.places import ZOO_PACKAGE
from batch_export.sources.recorded import in_root
from batch_export.sources.search_path import package_folders, search_path

_AS_FOLDER = (os.sep, f"{os.sep}{os.curdir}")
"""Ends a path that is that of a folder, or of none."""


class MissingModules:
    """Hears of the modules that nobody could find, as the last of the finders.

    Args:
        askers: tell whose searches count.
        notes: what processes that this one forks hear; None: they are not heard.
    """

    def __init__(self, askers: Askers, notes: ForkedNotes | None = None) -> None:
        notes = notes or ForkedNotes()
        self._askers = askers
        self.paths: set[str] = notes.shared("places of modules")
        """Where they would be found."""
        self.tops: set[str] = notes.shared("modules")
        """Those of the top level, by name."""
        self.shared: set[str] = notes.shared("modules of packages")
        """Those of packages without a file (namespaces) or in folders of installed packages, to which others may add
        modules, by name.
        """
        self.extended: set[str] = notes.shared("extended packages")
        """Packages with a file whose folders are those of their name in the whole path (`pkgutil.extend_path`)."""
        self.extended_by_user: set[str] = notes.shared("packages that the user extended")
        """Those among them that the user's own code extends."""

    def listen(self) -> None:
        """Starts to hear of what nobody finds, and of packages that are extended; there is no way to stop."""
        sys.meta_path.append(self)
        own = pkgutil.extend_path

        @functools.wraps(own)
        def extended(path: Any, name: str) -> Any:
            self.extended.add(name)
            if self._askers.is_users_own(sys._getframe(1)):
                self.extended_by_user.add(name)
            return own(path, name)

        pkgutil.extend_path = extended

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Notes the name, and finds nothing."""
        if self._askers.count(sys._getframe(1), importing=True):
            if path is None:
                self.tops.add(name)
            elif _may_get_more(name.rpartition(".")[0]):
                self.shared.add(name)
            for folder in list(sys.path if path is None else path):
                place = os.path.abspath(os.path.join(folder, name.rpartition(".")[2]))
                self.paths.update(place + suffix for suffix in ("", *SOURCE_SUFFIXES, *EXTENSION_SUFFIXES))
        return None


def _may_get_more(package: str) -> bool:
    """Whether modules may be added to a package that are no local ones."""
    file = getattr(sys.modules.get(package), "__file__", None)
    return not isinstance(file, str) or is_installed(os.path.abspath(file))


def missing_portions(listed: Collection[str], extended: Collection[str] = (), always: Collection[str] = ()) -> set[str]:
    """Returns where packages without a file (namespaces) would have one more portion, of those that were listed.

    Args:
        listed: the folders whose listings count.
        extended: packages with a file that have portions as well, by name.
        always: those among them that count whether they were listed or not.
    """
    found: set[str] = set()
    for name, module in [*sys.modules.items()]:
        folders = getattr(module, "__path__", None)
        if folders is None or (getattr(module, "__file__", None) is not None and name not in extended):
            continue
        portions = {os.path.abspath(one) for one in folders}
        if name not in always and portions.isdisjoint(listed):
            continue
        parent, _, last = name.rpartition(".")
        entries = getattr(sys.modules.get(parent), "__path__", ()) if parent else sys.path
        found.update(os.path.abspath(os.path.join(entry, last)) for entry in entries)
        found -= portions
    return {one for one in found if not os.path.isdir(one)}


def states(
    asked: Mapping[tuple[str, How], str],
    opened: Mapping[str, Opened],
    sources: Mapping[str, Digest],
    name_of: Callable[[str, bool], str | None],
) -> tuple[tuple[str, str], ...]:
    """Returns what is to be recorded, sorted by name.

    Args:
        asked: what each path was when it was asked about first.
        opened: what was opened, or made: a file that the model wrote is no condition of what it did.
        sources: the names that are recorded with their content.
        name_of: the name to record for a path, given whether it is data: it was there, and nobody wrote to it; None
            when it does not count.
    """
    present = {name.rstrip(os.sep) for name, digest in sources.items() if digest != ABSENT}
    implied = present.union(*map(_folders_of, present))
    found: set[tuple[str, str]] = set()
    for (path, _), state in asked.items():
        note = opened.get(path)
        if note is not None and note.wrote:
            if note.before is None:
                continue
            state = without_size(state)
        is_data = of_a_step(state) != ABSENT and (note is None or not note.wrote)
        name = name_of(path, is_data)
        if name is None or (state == ABSENT and sources.get(name) == ABSENT):
            continue
        if path.endswith(_AS_FOLDER) and not (follows_from_content(state) or name.endswith(os.sep)):
            name += os.sep  # nothing is there for who wants a folder where a file is, and no link where one leads on
        if name not in implied or not follows_from_content(state):
            found.add((name, state))
    return tuple(sorted(found))


def earlier_places(modules: Mapping[str, str]) -> set[str]:
    """Returns where an import looked before it found a module: paths without an ending, by the path as it is now.

    Args:
        modules: local modules, name -> file.
    """
    found: set[str] = set()
    places: dict[str, list[str]] = {}
    for module, file in modules.items():
        parent, _, name = module.rpartition(".")
        if parent not in places:
            places[parent] = _search_places(parent)
        home, folders = os.path.abspath(os.path.dirname(module_of(file) or file)), places[parent]  # `src/../libs`
        if home in folders:  # else it was not found by its name
            found.update(os.path.join(folder, name) for folder in folders[: folders.index(home)])
    return found


def earlier_packages(tops: Iterable[str], file_of: Callable[[str], str | None], aside: str) -> set[str]:
    """Returns where an import would look among the installed packages before it found a module: paths without an
    ending.

    Args:
        tops: top-level modules and packages, installed or local.
        file_of: the file of a loaded module; None when it has none.
        aside: a folder whose packages do not count; empty: there is none.
    """
    folders = package_folders()
    found = earlier_places({top: file for top in tops if (file := file_of(top))})
    found = {place for place in found if os.path.dirname(place) in folders}
    return {place for place in found if not aside or not place.startswith(aside + os.sep)}


def in_added_folders(tops: Iterable[str], missing: Iterable[str], file_of: Callable[[str], str | None]) -> set[str]:
    """Returns where an import looked in folders that the model put on the path before it found a module elsewhere, or
    nowhere: paths without an ending.

    Args:
        tops: top-level modules and packages, local or installed.
        missing: those that were looked for in vain.
        file_of: the file of a loaded module; None when it has none.
    """
    added = _added_folders()
    files = {top: file_of(top) for top in tops} if added else {}
    found = earlier_places({top: file for top, file in files.items() if file})
    anywhere = {*missing, *(top for top, file in files.items() if not file)}  # a file goes before a namespace
    sought = {os.path.join(folder, name) for folder in added for name in anywhere}
    return sought | {place for place in found if os.path.dirname(place) in added}


def parts_in_added_folders(tops: Iterable[str], file_of: Callable[[str], str | None]) -> set[str]:
    """Returns where packages without a file (namespaces) have no part in folders that the model put on the path.

    Args:
        tops: top-level modules and packages.
        file_of: the file of a loaded module; None when it has none.
    """
    added = _added_folders()
    shared = [top for top in tops if added and top in sys.modules and not file_of(top) and _search_places(top)]
    places = (os.path.join(folder, top) for folder in added for top in shared)
    return {place for place in places if not os.path.lexists(place)}


def _added_folders() -> set[str]:
    before = set(map(os.path.abspath, search_path()))
    return {folder for folder in _search_places("") if folder not in before}


def none_before(
    roots: Sequence[Path], modules: Mapping[str, str], file_of: Callable[[str], str | None]
) -> set[tuple[str, str]]:
    """Returns that the first root has nothing of the name of a later one's module: a package alike may have other data.

    Of packages without a file (namespaces) no root before them has.

    Args:
        roots: folders of local modules.
        modules: local modules, name -> file.
        file_of: the file of a loaded module; None when it has none.
    """
    if not roots:
        return set()
    first, later = roots[0], tuple(f"{root}{os.sep}" for root in roots[1:])
    folders = [name for name in list(sys.modules) if "." not in name and file_of(name) is None]  # namespaces
    tops = {
        name.partition(".")[0]
        for name, file in (*modules.items(), *((name, place) for name in folders for place in _search_places(name)))
        if file.startswith(later) and not file.startswith(f"{first}{os.sep}") and not name.startswith(ZOO_PACKAGE)
    }
    found = {(top, ABSENT) for top in tops if not os.path.lexists(first / top)}
    for name in tops.intersection(folders):
        homes = _search_places(name)
        ends = [place for place, root in enumerate(roots) if str(root / name) in homes]
        before = range(1, min(ends, default=0))
        found |= {(in_root(place, name), ABSENT) for place in before if not os.path.lexists(roots[place] / name)}
    return found


def _search_places(package: str) -> list[str]:
    """Returns the folders in which modules of a package are looked for, or of none: those of the path."""
    try:
        places = list(sys.modules[package].__path__ if package else sys.path)
        return [os.path.abspath(place) for place in places]
    except Exception:  # modules may be lazy objects whose attributes raise
        return []


def packages_without_file(modules: Mapping[str, str], file_of: Callable[[str], str | None]) -> set[str]:
    """Returns the folders that are packages by what lies in them alone (namespaces).

    Args:
        modules: local modules, name -> file.
        file_of: the file of a loaded module; None when it has none.
    """
    found: set[str] = set()
    for module, file in modules.items():
        parent, folder = module.rpartition(".")[0], module_of(file) or ""
        while parent and folder:
            folder = os.path.dirname(folder)
            if file_of(parent) is None:
                found.add(folder)
            parent = parent.rpartition(".")[0]
    return found


def _folders_of(name: str) -> list[str]:
    parts = name.split(os.sep)
    return [os.sep.join(parts[:length]) for length in range(1, len(parts))]
