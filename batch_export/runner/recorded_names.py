"""The names under which files and folders are recorded, and which of them count at all.

Paths that a child used arrive; names relative to a root, or absolute outside all of them, leave. `recorded.py` finds
them again. Data in a later root are named by a module there: another checkout on `PYTHONPATH` has data of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from batch_export.runner.opened import Opened
from batch_export.runner.spellings import without_ways_up
from batch_export.runner.system_folders import is_systems_own
from batch_export.sources.closure import PACKAGE, is_installed, is_of_environment, relative_name
from batch_export.sources.file_digests import BYTECODE_SUFFIXES, LEFT_BEHIND_SUFFIXES, is_side_file
from batch_export.sources.module_forms import ModuleStates, module_of
from batch_export.sources.places import models_dir
from batch_export.sources.recorded import beside, first_of, in_root, is_first, is_of_modules
from batch_export.sources.run_folders import is_in_run

_OWN = str(PACKAGE) + os.sep
_OF_PROJECTS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_SOURCES = ("src", "lib", "python", "source", "sources")
"""How the folder in a project is called that its modules lie in."""
_RUNTIME_STATE = f"{os.sep}.onnxruntime{os.sep}"
"""Where onnxruntime keeps its telemetry, which a thread of its own writes at any time."""


_NOT_NEAR = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", "__pycache__", f"{os.sep}<")
"""Parts of paths that are asked about near any project and are none of its own."""


def _is_derived(name: str) -> bool:
    """Whether a file follows from others: bytecode does where its source is."""
    if not name.endswith(BYTECODE_SUFFIXES):
        return False
    return os.path.basename(os.path.dirname(name)) == "__pycache__" or os.path.exists(name[:-1])


class Names:
    """Names paths.

    Args:
        roots: folders of local modules.
        ignored: folders that are not sources.
    """

    def __init__(self, roots: Sequence[Path], ignored: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._ignored = tuple(str(folder) + os.sep for folder in ignored)
        self.prefixes = tuple(str(folder) + os.sep for folder in (models_dir(), *self._roots))
        """Where local files lie."""
        self._modules: dict[Path, str] = {}
        self._first = ""

    def find_by(self, files: Iterable[str]) -> None:
        """Says which modules were imported: those of later roots tell where data lie that they read beside themselves.

        Args:
            files: of modules, without links.
        """
        states = ModuleStates(self._roots)
        for file in files:
            is_own = file.startswith(_OWN) or not file.startswith(self.prefixes)
            home = None if is_own else _home(Path(file), self._roots)
            name = None if home is None else module_of(os.path.relpath(file, home))
            if home is None or not name or states.home(name) != str(home):
                continue
            if home == self._roots[0]:
                self._first = min(self._first or name, name)
            else:
                self._modules[home] = min(self._modules.get(home, name), name)

    def is_ignored(self, path: str) -> bool:
        """Whether nothing is noted of a path."""
        return path.startswith(self._ignored)

    def is_of_run(self, path: str) -> bool:
        """Whether a path lies in the folder of a run of ours, and our roots do not: its being there tells nothing."""
        return is_in_run(path) and not any(is_in_run(str(root)) for root in self._roots)

    def may_count(self, name: str, note: Opened | None = None, *, is_data: bool = False) -> bool:
        """Whether a path is that of something which is recorded.

        Args:
            name: the path.
            note: how it was opened; a lock or a log that was there before and is read alone is data like any other.
            is_data: whether it was there before and nobody wrote to it, where it was not opened.
        """
        name = without_ways_up(name)
        if name.endswith(LEFT_BEHIND_SUFFIXES) and not (is_data or (note is not None and note.is_data())):
            return False
        if _is_derived(name) or name.startswith(self._ignored) or _RUNTIME_STATE in name or is_side_file(name):
            return False
        return name.startswith(self.prefixes) or not _is_foreign(name)

    def of_asked(self, name: str, *, is_data: bool = False) -> str | None:
        """The name to record for what was asked about; None outside the roots, where there is too much of it.

        A way up stays in the name (`b/../w`): where it leads, and whether it leads anywhere, depends on what `b` is.

        Args:
            name: the path; whether a separator ends it is not in the name.
            is_data: whether it was there before and nobody wrote to it: locks and logs count then.
        """
        for before, rest in _ways_up(name):
            if (known := self._as_written(name, before, rest, is_data=is_data)) is not None:
                return known
            if not os.path.isdir(before):
                return None
        folder, file = os.path.split(name.rstrip(os.sep) or os.sep)
        if file.startswith("<"):
            return None  # generated code has no file, but whoever prints a traceback looks for one
        if file in ("", os.curdir, os.pardir):
            path = os.path.realpath(name)
        elif os.pardir in folder.split(os.sep) or not name.startswith(self.prefixes):
            path = os.path.join(os.path.realpath(folder), file)
        else:
            path = os.path.normpath(name)
        if (
            f"{path}{os.sep}" in self.prefixes
            or not path.startswith(self.prefixes)
            or not self.may_count(path, is_data=is_data)
            or "__pycache__" in path.split(os.sep)
        ):
            return None
        relative = relative_name(Path(path), self._roots)
        if relative in (None, "."):  # a root itself
            return None
        if (found := self._beside(Path(path), relative)) is not None:
            return found
        return relative if is_first(relative, path, self._roots) else path

    def of_place(self, place: str) -> str:
        """The name to record for where a module was looked for: relative to the roots if it is found so.

        Args:
            place: an absolute path without an ending.
        """
        folder, file = os.path.split(place)
        path = os.path.join(os.path.realpath(folder), file)
        relative, states = relative_name(Path(path), self._roots), ModuleStates(self._roots)
        is_found = relative is not None and states.of(relative) == states.of(path)
        return relative if relative is not None and is_found else path

    def _as_written(self, name: str, before: str, rest: str, *, is_data: bool) -> str | None:
        """The name to record for a path with a way up; None where it leads out of the roots or does not count.

        Args:
            name: the path.
            before: its part before the way up.
            rest: the way up, and what follows.
            is_data: whether something is there that counts.
        """
        written = os.path.normpath(name) + os.sep
        folder = self.of_asked(before)
        if folder is None or not written.startswith(self.prefixes) or "__pycache__" in rest.split(os.sep):
            return None
        if not self.may_count(name, is_data=is_data):
            return None
        found = f"{folder}{os.sep}{rest}"
        place = os.path.join(os.path.realpath(os.path.dirname(before)), os.path.basename(before), rest)
        return found if os.path.isabs(found) or is_first(found, place, self._roots) else place

    def of_elsewhere(self, name: str, *, is_missed: bool = False) -> str | None:
        """The name to record for what was asked about outside the roots; None for what does not count there either.

        Roots themselves, and the folders that they lie in, tell where a project lies.

        Args:
            name: the path.
            is_missed: whether nothing was there where `Heard` counts that: it does in a package's folder, too.
        """
        folder, file = os.path.split(name.rstrip(os.sep))
        path = os.path.join(os.path.realpath(folder), file)
        if not os.path.isabs(name) or file.startswith("<"):
            return None
        if is_installed(Path(path)):
            return path if is_missed and not _is_derived(path) else None
        is_local = path.startswith(self.prefixes) and not is_of_environment(Path(path), self._roots)
        if is_local or any(root.startswith(path + os.sep) for root in self.prefixes):
            return None
        if not self.may_count(path):
            return None
        return os.path.join(_without_ways_up(folder), file)  # links on the way count

    def chosen(self, name: str, real: Path) -> Path:
        """The path that leads to the same choice next time: a link's own, unless packages are linked into a folder."""
        path = Path(name)
        goes_up = os.pardir in path.parts
        if goes_up:
            path = Path(_without_ways_up(os.path.dirname(name)), os.path.basename(name))
        if str(path) == str(real) or is_installed(path):
            return real
        leads_in = self._is_in_root(real) and (goes_up or not self._is_in_root(path))
        return real if leads_in else path

    def _is_in_root(self, path: Path) -> bool:
        return str(path).startswith(self.prefixes)

    def of(self, path: Path, ending: str = "") -> str | None:
        """The name to record: relative if that leads back to the file, absolute if not; None where versions count.

        What is no module leads back from the first root alone: it is found by its place, and a file of that name in an
        earlier root, which may come to be there, is another one.

        Args:
            path: of a file or a folder.
            ending: a separator for a folder.
        """
        relative = relative_name(path, self._roots)
        if relative is None:
            foreign = _is_foreign(str(path)) or is_installed(path)
            return None if foreign else str(path)
        if (found := self._beside(path, relative)) is not None:
            return found
        if first_of(f"{relative}{ending}", self._roots) not in (path, None):
            return str(path)
        home = _home(path, self._roots)
        is_found_by_name = home in (None, self._roots[0]) or is_of_modules(str(path))
        return relative if is_found_by_name else str(path)

    def of_project(self, path: Path, ending: str = "") -> str | None:
        """The further name of what lies near a root with modules (`parents[1] / "weights"`), of a module in a later one
        that is not found by its name there, or of what lies in one without modules; None of others.

        Args:
            path: of a file or a folder.
            ending: a separator for a folder.
        """
        if path.is_relative_to(PACKAGE):
            return None
        within = _home(path, self._roots)
        if within is not None and within in self._modules:
            is_found = not is_of_modules(str(path)) or not os.path.isabs(self.of(path, ending) or "")
            return None if is_found else beside(self._modules[within], os.path.relpath(path, within))
        for home, module in sorted(self._modules.items()):
            area = next((one for one in _areas(home) if path.is_relative_to(one)), None)
            if area is None or (within is not None and _holds_others(area, home, within)):
                continue
            return beside(module, os.path.relpath(path, home) + ending)
        if self._first and within is None and any(path.is_relative_to(one) for one in _around(self._roots[0])):
            return beside(self._first, os.path.relpath(path, self._roots[0]) + ending)
        return self._by_place(path, within, ending)

    def _by_place(self, path: Path, root: Path | None, ending: str) -> str | None:
        """The name of what lies in a later root without modules, by the root's place; None of others."""
        if root not in self._later():
            return None
        return in_root(self._roots.index(root), os.path.relpath(path, root) + ending)

    def _later(self) -> tuple[Path, ...]:
        """The later roots in which no module was found; our own is none."""
        return tuple(root for root in self._roots[1:] if root not in self._modules and root != PACKAGE.parent)

    def of_asked_near(self, name: str, *, is_data: bool = False) -> str | None:
        """The further name of what was asked about near a later root with modules; None of others.

        Args:
            name: the path.
            is_data: as for `of_asked`.
        """
        if not name.startswith(self._near()) or any(part in name for part in _NOT_NEAR):
            return None
        folder, file = os.path.split(name.rstrip(os.sep))
        path = os.path.join(os.path.realpath(folder), file)
        if file in ("", os.curdir, os.pardir):
            path = os.path.realpath(name)
        if any(one.startswith(path + os.sep) for one in self.prefixes) or not self.may_count(path, is_data=is_data):
            return None
        return None if is_installed(Path(path)) else self.of_project(Path(path))

    def _near(self) -> tuple[str, ...]:
        areas = (area for home in self._modules for area in _areas(home))
        around = _around(self._roots[0]) if self._first else ()
        return tuple(f"{area}{os.sep}" for area in (*areas, *around, *self._later()))

    def _beside(self, path: Path, relative: str) -> str | None:
        """The name of what is no module and lies in a later root: by a module that was imported from there."""
        home = _home(path, self._roots)
        if is_of_modules(relative) or home is None or home not in self._modules:
            return None
        return beside(self._modules[home], relative)


def _home(path: Path, roots: Sequence[Path]) -> Path | None:
    """The innermost root that a path is in."""
    return max((one for one in roots if path.is_relative_to(one)), key=lambda one: len(one.parts), default=None)


@cache
def _areas(root: Path) -> tuple[Path, ...]:
    """The folders above a root that may be its project's: two, and those in which a project and a repository begin."""
    above = [one for one in root.parents if len(one.parts) > 1]
    return (*above[:2], *_begun(above))


@cache
def _around(root: Path) -> tuple[Path, ...]:
    """The same of the current folder, of which the parent counts where it is a project's sources: elsewhere much else
    lies there (`~`).
    """
    above = [one for one in root.parents if len(one.parts) > 1]
    return (*(above[:1] if root.name in _SOURCES else ()), *(one for one in _begun([root, *above]) if one != root))


def _begun(folders: Sequence[Path]) -> list[Path]:
    """The first of some folders in which a project begins, and the first in which a repository does."""
    kinds = (_OF_PROJECTS[:1], _OF_PROJECTS[1:])
    found = (next((one for one in folders if any((one / name).exists() for name in kind)), None) for kind in kinds)
    return [one for one in found if one is not None]


def _holds_others(area: Path, root: Path, other: Path) -> bool:
    """Whether a folder above a root has other projects in it, such as that of another root."""
    is_of_project = area in (root.parent, other) or any((area / name).exists() for name in _OF_PROJECTS)
    return not is_of_project and other.is_relative_to(area)


def _without_ways_up(folder: str) -> str:
    """A folder by where the last way up (`..`) leads, and the names behind it as they are."""
    before, way_up, rest = f"{folder}{os.sep}".rpartition(f"{os.sep}{os.pardir}{os.sep}")
    if not way_up:
        return folder
    return os.path.join(os.path.realpath(before + way_up), rest).rstrip(os.sep) or os.sep


def _ways_up(path: str) -> Iterator[tuple[str, str]]:
    """Yields a path in two parts at each way up (`..`) that has a name before it; the second part begins with it."""
    parts = path.split(os.sep)
    for place, part in enumerate(parts):
        if part == os.pardir and any(one not in ("", os.curdir, os.pardir) for one in parts[:place]):
            yield os.sep.join(parts[:place]), os.sep.join(parts[place:])


def _is_foreign(name: str) -> bool:
    return is_systems_own(name) or name.startswith(_OWN)
