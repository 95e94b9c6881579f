"""Which files a child has really used: local modules, whatever was opened for reading, asked about or listed. Like a
depfile.

Roots and notes arrive, `(name, digest)` and `(name, state)` pairs leave. Installed in a child before the model's
builder runs; it watches and never forbids anything. The notes are the kernel's (`witness.py`); where it gives none,
they are those of Python's audit hook and of the files mapped into memory.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from batch_export.digest import Digest
from batch_export.runner import repeated_calls
from batch_export.runner.asked_about import (
    MissingModules,
    earlier_places,
    missing_portions,
    none_before,
    packages_without_file,
    states,
)
from batch_export.runner.asked_times import orders
from batch_export.runner.askers import Askers
from batch_export.runner.audited import listen
from batch_export.runner.forked_notes import ForkedNotes
from batch_export.runner.heard import Heard, absolute, as_heard
from batch_export.runner.kernel_filter import be_watched
from batch_export.runner.left_behind import is_temporary, left_behind
from batch_export.runner.listed_folders import Listings, listed_elsewhere
from batch_export.runner.opened import Notes, Opened, Stamp, mapped_files, stamp_of
from batch_export.runner.opened_of_packages import OpenedOfPackages
from batch_export.runner.recorded_names import Names
from batch_export.runner.witness import ask, forget_since
from batch_export.sources import path_shape
from batch_export.sources.asked import ABSENT, How, leads_on, target_of
from batch_export.sources.closure import is_installed, relative_name
from batch_export.sources.file_digests import LEFT_BEHIND_SUFFIXES, content_digest
from batch_export.sources.module_forms import ModuleStates, module_of
from batch_export.sources.recorded import (
    CHANGED,
    METADATA_OF,
    MODULES_OF,
    PASSING,
    PATH,
    UNREADABLE,
    current_digest,
    in_root,
)

_MADE = ("os.mkdir", "os.rename", "os.link", "os.symlink")
_MADE_UNHEARD = ("mkfifo", "mknod")
"""Functions of `os` that make something and raise no event."""
_NO_NAMES = ("", os.curdir, os.pardir)
_NAMELESS = getattr(os, "O_TMPFILE", 0)


class LoadedFiles:
    """Watches the files that this process opens.

    Args:
        roots: folders of local modules.
        ignored: folders that are not sources: the store, then others such as the run's own folder.
        installed: files known to be of installed packages, see `installed_modules`.
        askers: tell whose listings of folders count.
        notes: what processes that this one forks hear; None: they are not heard.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        ignored: Sequence[Path],
        installed: Collection[str] = (),
        askers: Askers | None = None,
        notes: ForkedNotes | None = None,
    ) -> None:
        self._roots = tuple(root for root in roots if len(root.parts) > 1)
        self._avoided = tuple(ignored[:1])
        self._names = Names(self._roots, ignored)
        self._notes = Notes(self._names.is_ignored)
        self._askers = askers or Askers(())
        self.missing = MissingModules(self._askers, notes)
        """The modules that were looked for in vain."""
        self._asked: dict[tuple[str, How], str] = {}
        self._sought: Collection[str] = ()
        self._sources: dict[str, Digest] = {}
        self._opened_last: Mapping[str, Opened] = {}
        self._used: set[str] = set()
        """What is recorded, without links."""
        self._heard = Heard(self._askers, notes)
        self._installed = set(installed)
        self._nameless: set[str] = set()
        """Files that no result names, such as our own."""
        self._channel: socket.socket | None = None
        self._told: set[str] = set()
        self._of_packages = OpenedOfPackages()
        self.of_packages: frozenset[str] = frozenset()
        """Files of installed packages that other processes opened, and data that this one did, as told by `sources`."""
        self.has_started_python = False
        """Whether another process executed Python, which looks for modules by itself."""
        self.unseen = ""
        """Why files may be missed that Python does not open itself; empty when none is."""
        self.changed: list[str] = []
        """Files found to have changed since they were read, each once."""
        self.passing: list[str] = []
        """Pipes and devices that were read, each once."""

    def watch(self, channel: socket.socket | None = None) -> None:
        """Starts watching; there is no way to stop.

        Args:
            channel: leads to the process that hears what the kernel says; None: there is no such process.
        """
        self.unseen = be_watched(channel) if channel is not None else "children are not forked here"
        self._channel = None if self.unseen else channel
        if self._channel is not None:
            repeated_calls.begin()
        listen((*_MADE, "open"), self._hear)
        self._heard.listen()
        if self._channel is None:
            for name in _MADE_UNHEARD:
                if hasattr(os, name):
                    setattr(os, name, self._noting(getattr(os, name)))
        self.missing.listen()

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _MADE:
            if self._channel is None:
                self._note_made(event, arguments)
        elif event == "open":
            path, _, flags = arguments
            if not isinstance(path, str | bytes | os.PathLike):
                return
            if (flags or 0) & _NAMELESS == _NAMELESS != 0:
                return
            if (flags or 0) & getattr(os, "O_DIRECTORY", 0):
                self._heard.listings[absolute(path)] += 1
            elif self._channel is None:
                self._notes.add(absolute(path), flags or 0)

    def _noting(self, make: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(make)
        def noted(path: str | bytes | os.PathLike[str], *rest: int, dir_fd: int | None = None, **named: int) -> None:
            if dir_fd is None:
                self._notes.make(absolute(path))
            make(path, *rest, dir_fd=dir_fd, **named)

        return noted

    def _note_made(self, event: str, arguments: tuple[Any, ...]) -> None:
        *paths, folder = [one for one in arguments if isinstance(one, str | bytes | os.PathLike)] or [""]
        if any(isinstance(one, int) and one >= 0 for one in arguments[2:]):
            return  # relative to folders that are open
        source = absolute(paths[0]) if event in ("os.rename", "os.link") and paths else ""
        self._notes.make(absolute(folder), source, replaces=event == "os.rename")

    def modules(self) -> dict[str, str]:
        """Returns the local modules: name -> file."""
        found = ((name, file_of(name)) for name in list(sys.modules))
        mine = ((name, file) for name, file in found if file and file.startswith(self._names.prefixes))
        return {
            name: file
            for name, file in mine
            if file not in self._installed
            and file not in self._nameless
            and relative_name(Path(file), self._roots) is not None
        }

    def sources(
        self,
        searched: Collection[str] = (),
        sought: Collection[str] = (),
        *,
        by_path: bool = False,
        failed: bool = False,
    ) -> tuple[tuple[str, Digest], ...]:
        """Returns the files loaded so far, sorted by name: relative to a root, or absolute outside all of them.

        A file that is not there counts as such, if it was looked for in a root, beside something that was used, by the
        user's own code, or anywhere by a step that failed; what this process or one that it started has made does not
        count.

        Args:
            searched: folders in which the metadata of distributions was looked for.
            sought: files of local modules that were looked for and not imported.
            by_path: whether it counts in any case of what folders and archives the path is made.
            failed: whether the step failed, which a file that is there by then may mend.
        """
        opened = self._opened_last = self._opened()
        self._used.clear()
        found: dict[str, Digest] = {}
        folders = cache(_real_folder)  # thousands of modules lie in some hundred folders
        modules = _module_files()
        located = {*modules, *sought} - self._installed
        homes = ((*folders(os.path.dirname(name)), os.path.basename(name)) for name in located)
        self._names.find_by(os.path.join(real, file) for real, installed, file in homes if not installed)
        in_vain: dict[str, dict[str, Digest]] = {}
        data = self._of_packages.look(opened, modules, lambda folder: folders(folder)[0])
        self.of_packages |= data
        for name, spelled in self._of_packages.unlisted.items():
            note = opened.get(spelled)
            if name.endswith(LEFT_BEHIND_SUFFIXES) and not (note and note.is_data()):
                continue
            if digest := self._digest(Path(name), note):
                found[name] = digest
        for name in sorted((modules | opened.keys()) - self._installed - self._nameless):
            if not self._names.may_count(name, opened.get(name)):
                continue
            folder, file = os.path.split(name)
            real, installed = folders(folder)
            is_link = os.path.islink(name)
            if installed and not is_link:
                self._installed.add(name)
                continue
            real_name = os.path.join(real, file)
            path = Path(os.path.realpath(real_name) if is_link or file in _NO_NAMES else real_name)
            recorded = self._names.of(self._names.chosen(name, path))
            if recorded is None:
                if name == str(path):
                    self._nameless.add(name)
                continue
            digest = self._digest(path, opened.get(name))
            recorded_as = dict.fromkeys(filter(None, (recorded, self._names.of_project(path))), digest)
            if digest == ABSENT and not failed and recorded.startswith(os.sep):
                in_vain[name] = recorded_as
            elif digest:
                found |= recorded_as
                self._used.add(str(path))
        listings = Listings(self._names, self._heard, self._avoided, opened)
        found |= listings.digests(self._heard.listed) | listings.digests(searched, METADATA_OF)
        self._used |= listings.used
        for changed in listings.changed:
            self._unsure(changed, self.changed, CHANGED)
        for name, recorded_as in in_vain.items():
            is_sought = as_heard(name) in self._heard.opened or self._is_plain(name)
            found |= recorded_as if is_sought or self._counts_elsewhere(name) else {}
        self._sources = found
        if by_path or self.has_started_python or self._uses_path(modules):
            self._sources[PATH] = path_shape.shape(self._roots)
        for place in range(len(self._roots) if self.has_started_python else 0):
            listed = in_root(place, f".{os.sep}{MODULES_OF}")
            self._sources[listed] = current_digest(listed, self._roots, next(iter(self._avoided), Path()))
        return tuple(sorted(self._sources.items()))

    def _counts_elsewhere(self, name: str, *, was_there: bool = False, failed: bool = False) -> bool:
        """Whether what was asked about outside the roots counts: where the user's own code asked, or where nothing was
        there and it may have been in the place of what was used, or a library asked for that code.
        """
        if as_heard(name) in self._heard.looked_for:
            return True
        folder = os.path.realpath(os.path.dirname(name.rstrip(os.sep)))
        is_near = failed or any(folder in (one, os.path.dirname(one)) for one in self._used)
        is_sought = is_near or (as_heard(name) in self._heard.for_user and self._is_plain(name))
        return is_sought and not was_there

    def _name_elsewhere(self, name: str, *, was_there: bool, failed: bool) -> str | None:
        is_missed = not was_there and as_heard(name) in self._heard.missed
        if not is_missed and not self._counts_elsewhere(name, was_there=was_there, failed=failed):
            return None
        return self._names.of_elsewhere(name, is_missed=is_missed)

    def _is_written(self, name: str) -> bool:
        note = self._opened_last.get(name)
        return note is not None and note.wrote

    def _is_plain(self, name: str) -> bool:
        """Whether nobody keeps programs, settings or caches there, and a folder is there: what lies so is data."""
        folder = os.path.dirname(name)
        if folder in os.get_exec_path():
            return False
        is_hidden = any(one.startswith(".") for one in folder.split(os.sep))
        return not is_hidden and not is_temporary(name, self._roots) and os.path.isdir(folder)

    def _uses_path(self, modules: Collection[str]) -> bool:
        """Whether folders of the path were listed, or modules are of an archive on it."""
        begun = tuple(f"{archive}{os.sep}" for archive in path_shape.archives())
        is_listed = any(Path(os.path.realpath(name)) in self._roots[1:] for name in self._heard.looked_into)
        return is_listed or any(name.startswith(begun) for name in modules)

    def asked(self, *, failed: bool = False) -> tuple[tuple[str, str], ...]:
        """Returns what was asked about in the roots, without its content mattering; to be called after `sources`.

        What the user's own code asked about counts elsewhere, too, and so does what is not there where `sources` counts
        what was opened in vain.

        Args:
            failed: whether the step failed: what it asked about in vain counts anywhere then.
        """
        extended = self.missing.extended, self.missing.extended_by_user
        self._heard.missed.update(missing_portions(self._heard.listed, *extended))
        missed = self.missing.paths | self._heard.missed
        missing: dict[tuple[str, How], str] = {(path, "kind"): ABSENT for path in missed}
        asked = {one: state for one, state in (missing | self._asked).items() if not self._names.is_of_run(one[0])}
        chosen = self._links_to_what_was_used()
        found = states(
            asked,
            self._opened_last,
            self._sources,
            lambda name, is_data: (
                chosen.get(name)
                or self._names.of_asked(name, is_data=is_data)
                or self._name_elsewhere(name, was_there=is_data or self._is_written(name), failed=failed)
            ),
        )
        near = states(
            asked,
            self._opened_last,
            self._sources,
            lambda name, is_data: self._names.of_asked_near(name, is_data=is_data),
        )
        in_order: set[tuple[str, str]] = set()
        for what, paths in self._heard.timed.items():
            timed = {path: name for path in paths if (name := self._name_of_timed(path)) is not None}
            in_order.update((timed[path], state) for path, state in orders(timed, what))
        made = left_behind(self._opened_last, self._sought, self._name_of_made, self._roots)
        names = {name for name, digest in self._sources.items() if digest != ABSENT}
        local = self.modules()
        elsewhere = packages_without_file(local, file_of) | earlier_places(local)
        places = {self._names.of_place(one) for one in elsewhere if self._names.of_asked(one) is not None}
        imported = filter(None, {*map(module_of, names), *places})
        modules = ModuleStates(self._roots)
        taken = {(name, modules.of(name)) for name in imported}
        return tuple(
            sorted({*found, *near, *in_order, *made.items(), *taken, *none_before(self._roots, local, file_of)})
        )

    def name_of_place(self, place: str) -> str:
        """Returns the name to record for a place at which an import looked, an absolute path without an ending."""
        return self._names.of_place(place)

    def _name_of_timed(self, path: str) -> str | None:
        return self._names.of_asked(path, is_data=True) or self._names.of_elsewhere(path)

    def _name_of_made(self, name: str) -> str | None:
        if not self._names.may_count(name):
            return None
        folder, file = os.path.split(name)
        path = Path(os.path.realpath(folder), file)
        recorded = None if is_installed(path) else self._names.of(path)
        return None if recorded in self._sources else recorded

    def used(self) -> list[str]:
        """Returns the paths that were opened and may count, those that were made included; after `sources`."""
        opened = ((path, note) for path, note in self._opened_last.items() if path not in self._installed)
        return [path for path, note in opened if self._names.may_count(path, note)]

    def opened(self) -> Collection[str]:
        """Returns all paths that were opened, the system's own included; after `sources`."""
        return self._opened_last.keys()

    def _links_to_what_was_used(self) -> dict[str, str]:
        """The links outside the roots that were read, and lead to what was then used by its own name: path -> name.

        Links above a root are left out: they say where a project lies, not what a model chose.
        """
        folders = {str(folder) for name in self._used for folder in (Path(name), *Path(name).parents)}
        folders -= {str(folder) for root in self._roots for folder in (root, *root.parents)}
        found: dict[str, str] = {}
        for (name, _), state in self._asked.items():
            if not leads_on(state) or name.startswith(self._names.prefixes):
                continue
            folder, file = os.path.split(name.rstrip(os.sep))
            if os.path.realpath(os.path.join(folder, target_of(state))) in folders:
                path = os.path.join(os.path.realpath(folder), file) if os.pardir in folder.split(os.sep) else name
                if self._names.may_count(path) and not is_installed(Path(path)):
                    found[name] = path
        return found

    def set_aside(self) -> None:
        """Says that what was opened since `sources` was called last was not opened for the model."""
        if self._channel is not None:
            forget_since(self._channel)
        else:
            self._notes.rewind()

    def _opened(self) -> Mapping[str, Opened]:
        if self._channel is not None:
            told = ask(self._channel)
            self.unseen = told.blind
            self.of_packages = frozenset(told.of_packages)
            self._asked = {(path, how): state for path, how, state in told.asked}
            self._sought = told.sought
            self.has_started_python = any(process != os.getpid() for process in told.interpreters)
            self._heard.listed |= listed_elsewhere(told, self._heard, self._roots)
            return told.files
        self.of_packages = frozenset()
        for name in mapped_files():
            if name not in self._notes.files and self._names.may_count(name):
                self._notes.add(name, os.O_RDONLY)
        self._notes.mark()
        self._sought = self._notes.sought
        return self._notes.files

    def _digest(self, path: Path, note: Opened | None) -> Digest:
        """The digest to record; empty for what was made here."""
        try:
            status = os.stat(path)
        except OSError:
            status = None
        if note is None:
            return "" if status is None else _content(path)
        if note.passing:
            return self._unsure(path, self.passing, PASSING)
        if note.is_of_model(None if status is None else stamp_of(status)):
            return ""
        if status is None:
            return ABSENT if note.before is None else "" if note.wrote else self._unsure(path, self.changed, CHANGED)
        by_its_name = self._opened_last.get(str(path), note)
        if note.came_later() and by_its_name.came_later():
            return self._unsure(path, self.changed, CHANGED)
        if self._is_another(path, note, stamp_of(status)):
            return self._unsure(path, self.changed, CHANGED)
        return _content(path)

    def _is_another(self, path: Path, note: Opened, now: Stamp) -> bool:
        if not note.is_another(now, exactly=self._channel is not None):
            return False
        if note.is_another(now, exactly=False):
            return True
        try:
            return stamp_of(os.stat(path)) == now  # there are file systems that say another time at each look
        except OSError:
            return True

    def _unsure(self, path: Path, names: list[str], digest: Digest) -> Digest:
        if str(path) not in self._told:
            self._told.add(str(path))
            names.append(str(path))
        return digest


def installed_modules() -> frozenset[str]:
    """Returns the files of the modules loaded so far that came with installed packages, not through links."""
    folders = cache(_real_folder)
    names = _module_files()
    return frozenset(name for name in names if folders(os.path.dirname(name))[1] and not os.path.islink(name))


def file_of(module: str) -> str | None:
    """Returns the absolute path of a loaded module's file; None when it has none."""
    try:
        name = sys.modules[module].__file__
    except Exception:  # modules may be lazy objects whose attributes raise
        return None
    if not isinstance(name, str):
        return None
    return name if os.path.isabs(name) else os.path.abspath(name)


def _content(path: Path) -> Digest:
    """The digest of a file that was there; empty where none is now."""
    try:
        return content_digest(path) if path.is_file() else ""
    except OSError:
        return UNREADABLE


def _module_files() -> set[str]:
    return {name for name in map(file_of, list(sys.modules)) if name}


def _real_folder(name: str) -> tuple[str, bool]:
    """Returns a folder without symlinks, and whether it is one of installed packages."""
    real = os.path.realpath(name)
    return real, is_installed(Path(real))
