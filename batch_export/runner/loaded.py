"""Which files a child has really used: local modules, whatever was opened for reading, asked about or listed. Like a
depfile.

Roots and what was noted of this process (`watching.py`) arrive, `(name, digest)` and `(name, state)` pairs leave.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

from batch_export.digest import Digest
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
from batch_export.runner.digests_of_opened import DigestsOfOpened
from batch_export.runner.forked_notes import ForkedNotes
from batch_export.runner.heard import Heard, as_heard
from batch_export.runner.left_behind import is_temporary, left_behind
from batch_export.runner.listed_folders import Listings
from batch_export.runner.module_files import file_of, module_files, real_folder
from batch_export.runner.opened_of_packages import OpenedOfPackages
from batch_export.runner.recorded_names import Names
from batch_export.runner.watching import Watching
from batch_export.sources import path_shape
from batch_export.sources.asked import ABSENT, How, leads_on, target_of
from batch_export.sources.closure import is_installed, relative_name
from batch_export.sources.file_digests import LEFT_BEHIND_SUFFIXES
from batch_export.sources.module_forms import ModuleStates, module_of
from batch_export.sources.recorded import METADATA_OF, MODULES_OF, PATH, current_digest, in_root

_NO_NAMES = ("", os.curdir, os.pardir)


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
        self._askers = askers or Askers(())
        self.missing = MissingModules(self._askers, notes)
        """The modules that were looked for in vain."""
        self._sources: dict[str, Digest] = {}
        self._used: set[str] = set()
        """What is recorded, without links."""
        self._heard = Heard(self._askers, notes)
        self._watching = Watching(self._roots, self._names, self._heard)
        self._digests = DigestsOfOpened()
        self._installed = set(installed)
        self._nameless: set[str] = set()
        """Files that no result names, such as our own."""
        self._of_packages = OpenedOfPackages()
        self.of_packages: frozenset[str] = frozenset()
        """Files of installed packages that other processes opened, and data that this one did, as told by `sources`."""

    @property
    def has_started_python(self) -> bool:
        """Whether another process executed Python, which looks for modules by itself."""
        return self._watching.has_started_python

    @property
    def unseen(self) -> str:
        """Why files may be missed that Python does not open itself; empty when none is."""
        return self._watching.unseen

    @property
    def changed(self) -> list[str]:
        """Files found to have changed since they were read, each once."""
        return self._digests.changed

    @property
    def passing(self) -> list[str]:
        """Pipes and devices that were read, each once."""
        return self._digests.passing

    def watch(self, channel: socket.socket | None = None) -> None:
        """Starts watching; there is no way to stop.

        Args:
            channel: leads to the process that hears what the kernel says; None: there is no such process.
        """
        self._watching.begin(channel)
        self.missing.listen()

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
        opened = self._watching.look()
        exactly = self._watching.is_by_kernel
        self._used.clear()
        found: dict[str, Digest] = {}
        folders = cache(real_folder)  # thousands of modules lie in some hundred folders
        modules = module_files()
        located = {*modules, *sought} - self._installed
        homes = ((*folders(os.path.dirname(name)), os.path.basename(name)) for name in located)
        self._names.find_by(os.path.join(real, file) for real, installed, file in homes if not installed)
        in_vain: dict[str, dict[str, Digest]] = {}
        data = self._of_packages.look(opened, modules, lambda folder: folders(folder)[0])
        self.of_packages = self._watching.of_packages | data
        for name, spelled in self._of_packages.unlisted.items():
            note = opened.get(spelled)
            if name.endswith(LEFT_BEHIND_SUFFIXES) and not (note and note.is_data()):
                continue
            if digest := self._digests.of(Path(name), note, opened.get(name), exactly=exactly):
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
            digest = self._digests.of(path, opened.get(name), opened.get(str(path)), exactly=exactly)
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
            self._digests.note_change(changed)
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
        note = self._watching.opened.get(name)
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
        asked = {
            one: state for one, state in (missing | self._watching.asked).items() if not self._names.is_of_run(one[0])
        }
        chosen = self._links_to_what_was_used()
        found = states(
            asked,
            self._watching.opened,
            self._sources,
            lambda name, is_data: (
                chosen.get(name)
                or self._names.of_asked(name, is_data=is_data)
                or self._name_elsewhere(name, was_there=is_data or self._is_written(name), failed=failed)
            ),
        )
        near = states(
            asked,
            self._watching.opened,
            self._sources,
            lambda name, is_data: self._names.of_asked_near(name, is_data=is_data),
        )
        in_order: set[tuple[str, str]] = set()
        for what, paths in self._heard.timed.items():
            timed = {path: name for path in paths if (name := self._name_of_timed(path)) is not None}
            in_order.update((timed[path], state) for path, state in orders(timed, what))
        made = left_behind(self._watching.opened, self._watching.sought, self._name_of_made, self._roots)
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
        opened = ((path, note) for path, note in self._watching.opened.items() if path not in self._installed)
        return [path for path, note in opened if self._names.may_count(path, note)]

    def opened(self) -> Collection[str]:
        """Returns all paths that were opened, the system's own included; after `sources`."""
        return self._watching.opened.keys()

    def _links_to_what_was_used(self) -> dict[str, str]:
        """The links outside the roots that were read, and lead to what was then used by its own name: path -> name.

        Links above a root are left out: they say where a project lies, not what a model chose.
        """
        folders = {str(folder) for name in self._used for folder in (Path(name), *Path(name).parents)}
        folders -= {str(folder) for root in self._roots for folder in (root, *root.parents)}
        found: dict[str, str] = {}
        for (name, _), state in self._watching.asked.items():
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
        self._watching.set_aside()
