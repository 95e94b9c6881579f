"""Notes on the paths that somebody opened, asked about or listed: what each was like at first, and whether it was
written.

Paths and flags of calls arrive one by one, plain data leaves. The same notes serve whoever sees the calls: the kernel's
listener (`witness.py`) or Python's audit hook.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec

from batch_export.runner.made import Made
from batch_export.runner.spellings import without_ways_up
from batch_export.runner.system_folders import PLACES_OF_PACKAGES
from batch_export.sources.asked import ABSENT, How, leads_on, of_a_step, state_of
from batch_export.sources.closure import is_installed

_METADATA = (f".dist-info{os.sep}", f".egg-info{os.sep}")

_UPWARDS = f"{os.sep}{os.pardir}{os.sep}"
"""Where it leads depends on the link before it, if that is one."""
_WITHOUT_NEWS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Devices of which one may stand anywhere in a file's place; what they give tells nothing."""
_PLACE_ONLY = getattr(os, "O_PATH", 0)
WRITTEN_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_ONLY_NEW = os.O_CREAT | os.O_EXCL

Stamp = tuple[int, int, int, int]
"""Time of the last change in ns, size, inode, and when anything of these or of its names and rights was changed last:
what shows that a file is not the one that it was.
"""


class Opened(msgspec.Struct, array_like=True):
    """One path that was opened.

    Attributes:
        before: the file as it was when it was opened first; None: there was none.
        output: whether that was to make or to empty it, so that nothing of it was read before. It may have failed.
        wrote: whether it was ever opened for writing.
        read: whether it was ever opened for reading.
        passing: whether it is a pipe or a device that was there: what was read of it nobody can read again.
        altered: whether its names, rights or attributes were changed by whoever is watched.
        whole: whether whoever opened it for writing made all of it: none added to what was there or changed a part.
    """

    before: Stamp | None
    output: bool
    wrote: bool
    read: bool
    passing: bool = False
    whole: bool = True
    altered: bool = False

    def is_of_model(self, now: Stamp | None) -> bool:
        """Returns whether there is nothing in it that was there before the model wrote it, or nobody read that.

        Args:
            now: the file as it is.
        """
        if self.before is None:
            return self.output or (self.wrote and now is not None)
        return self.wrote and (not self.read or (self.output and (now is None or now[:3] != tuple(self.before)[:3])))

    def came_later(self) -> bool:
        """Returns whether nothing was there when it was opened, and nobody who is watched has made what may be now."""
        return self.before is None and not (self.wrote or self.altered)

    def is_data(self) -> bool:
        """Returns whether it was there before, and was read alone."""
        return self.before is not None and self.read and not self.wrote

    def is_another(self, now: Stamp, *, exactly: bool) -> bool:
        """Returns whether somebody else may have changed it since it was opened first.

        Args:
            now: the file as it is.
            exactly: whether all is known that whoever is watched did to it, so that a change of anything is another's.
        """
        if self.before is None or self.wrote:
            return False
        return now[:3] != tuple(self.before)[:3] or (exactly and not self.altered and now != tuple(self.before))


class Notes:
    """What was opened, asked about and listed so far.

    Args:
        ignored: whether nothing is noted of a path.
    """

    def __init__(self, ignored: Callable[[str], bool]) -> None:
        self.files: dict[str, Opened] = {}
        self.asked: dict[tuple[str, How], str] = {}
        self.listed: dict[str, dict[int, int]] = {}
        """Folder -> process -> how often it was opened to be listed."""
        self.of_packages: dict[str, None] = {}
        """Files of installed packages that processes which the child started have opened."""
        self.sought: dict[str, None] = {}
        """What somebody asked about or tried to open, or to make only if it was not there, when it was not there."""
        self._altered: set[str] = set()
        self._marked = (0, 0, 0, 0)
        self._ignored = ignored
        self._made = Made()

    def add(self, path: str, flags: int) -> None:
        """Notes a call before it is carried out; `path` is absolute, `flags` are those of open(2)."""
        if self._is_ignored(path):
            return
        writes, reads = flags & (os.O_WRONLY | os.O_RDWR) != 0, _reads(flags)
        whole = not writes or (flags & os.O_TRUNC or flags & _ONLY_NEW == _ONLY_NEW) != 0
        origin = self._made.origin(path)
        looks = not flags & os.O_CREAT or flags & _ONLY_NEW == _ONLY_NEW
        known = self.files.get(origin or path)
        if flags & _ONLY_NEW == _ONLY_NEW and origin is not None and os.path.lexists(path):
            self.ask(path, "kind")  # it will fail
            return
        if known is not None:
            known.wrote |= writes
            known.read |= reads
            known.whole &= whole
            return
        if origin is None:
            if looks:
                self._seek(path)
            self.files[path] = Opened(None, output=True, wrote=True, read=reads, whole=whole)
            return
        if _UPWARDS in path:
            way = path.rpartition(_UPWARDS)[0]
            self.ask_links(way)
            self.ask(f"{way}{os.sep}{os.pardir}", "kind")
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            before = None
            if looks:
                self._seek(path)
            if writes:
                self.ask_in_vain(os.path.dirname(path))
            if _UPWARDS in path:
                self.ask(path, "kind")
        else:
            if stat.S_ISDIR(found.st_mode):
                self.ask_links(path)
                self.ask(path, "kind")  # as a file it is opened in vain
            if not stat.S_ISREG(found.st_mode):
                if _reads(flags) and is_passing(found) and not self._is_ignored(os.path.realpath(path)):
                    self.files[origin] = Opened(stamp_of(found), output=False, wrote=writes, read=True, passing=True)
                return
            before = stamp_of(found)
        output = writes and (bool(flags & os.O_TRUNC) or before is None)
        # What is in vain by a way that is not there says nothing of what lies at its end.
        altered = origin in self._altered or (before is None and _UPWARDS in path)
        self.files[origin] = Opened(before, output, writes, reads, whole=whole, altered=altered)

    def make(self, path: str, source: str = "", *, replaces: bool = False) -> None:
        """Notes that a call is about to make something at `path`: something new, or another name of `source`.

        Args:
            path: where.
            source: what gets that name; it has to be there.
            replaces: whether what is at `path` already would go; if not, the call fails where something is.
        """
        if self._is_ignored(path):
            return
        if source and not os.path.lexists(source):
            self.ask(source, "kind")
            return
        self.ask_in_vain(os.path.dirname(path))
        if not replaces and os.path.lexists(path):
            if not os.path.isdir(path):
                self.ask(path, "kind")
            return
        if source:
            self.alter(source)
            if not replaces:
                self._seek(path)
        self.add(path, WRITTEN_ANEW)
        self._made.make(path, source)

    def touch(self, path: str) -> None:
        """Notes that a file is about to get another time, by which nobody else has changed it."""
        self.ask_in_vain(path)
        known = self.files.get(self._made.origin(path) or path)
        if known is not None:
            known.wrote = True

    def cut(self, path: str) -> None:
        """Notes that a file is about to get another length."""
        self.ask_in_vain(path)
        if os.path.exists(path):
            self.add(path, os.O_WRONLY)

    def alter(self, path: str) -> None:
        """Notes that a file is about to get another name, other rights or attributes, by which its content stays."""
        self.ask_in_vain(path)
        origin = self._made.origin(path)
        if origin is not None and not self._is_ignored(path):
            self._altered.add(origin)
            if origin in self.files:
                self.files[origin].altered = True

    def ask(self, path: str, how: How) -> None:
        """Notes that somebody asks about a path, and how exactly."""
        if self._is_ignored(path) or (path, how) in self.asked or _is_installed(path):
            return
        if self._made.origin(path) != path:
            self._seek(path)
            return  # it answers about its own doing
        state = self.asked[path, how] = state_of(path, how)
        if of_a_step(state) == ABSENT:
            self._seek(path)
            if path.endswith(os.sep):  # whether nothing is there or no folder makes another error
                self.ask(path.rstrip(os.sep), "kind")

    def ask_step(self, path: str) -> bool:
        """Notes that somebody looks, on the way down a path, whether there is a link; returns whether there is one."""
        if self._is_ignored(path) or _is_installed(path):
            return os.path.islink(path)
        if self._made.origin(path) != path:
            self._seek(path)
            return os.path.islink(path)
        state = state_of(path, "link")
        is_link = leads_on(state)
        if is_link:
            self.asked.setdefault((path, "link"), state)
        else:
            self.asked.setdefault((path, "status"), of_a_step(state))
            if of_a_step(state) == ABSENT:
                self._seek(path)
        return is_link

    def ask_in_vain(self, path: str) -> None:
        """Notes a call that will fail, if nothing is there."""
        if not os.path.lexists(path):
            self.ask(path, "kind")

    def _seek(self, path: str) -> None:
        """Notes a path that somebody looks for, if nothing is there."""
        if path not in self.sought and not os.path.lexists(path):
            self.sought[path] = None

    def ask_links(self, path: str) -> None:
        """Notes the links that lead to a folder from which relative paths may start: these do not name it any more."""
        for folder in (Path(path), *Path(path).parents):
            if os.path.islink(folder):
                self.ask(str(folder), "link")

    def list(self, path: str, process: int) -> None:
        """Notes that a process opens a folder to list it."""
        if not self._is_ignored(path):
            counts = self.listed.setdefault(path, {})
            counts[process] = counts.get(process, 0) + 1

    def _is_ignored(self, path: str) -> bool:
        return self._ignored(without_ways_up(path))

    def add_of_package(self, path: str) -> None:
        """Notes that a process which the child started opens a file of an installed package."""
        self.of_packages[path] = None

    def mark(self) -> None:
        """Says that what was noted so far is the model's."""
        self._settle()
        self._marked = (len(self.files), len(self.asked), len(self.of_packages), len(self.sought))

    def _settle(self) -> None:
        """Tells of what was opened in vain whether it came with a folder, or by a link, that was made here."""
        for path, note in self.files.items():
            if note.before is None and not note.wrote and (origin := self._made.origin(path)) != path:
                note.wrote, note.altered = origin is None, origin is not None

    def rewind(self) -> None:
        """Says that what was noted since the mark is not the model's; what it opens later is noted anew."""
        opened, asked, of_packages, sought = self._marked
        for path in [*self.files][opened:]:
            del self.files[path]
        for question in [*self.asked][asked:]:
            del self.asked[question]
        for path in [*self.of_packages][of_packages:]:
            del self.of_packages[path]
        for path in [*self.sought][sought:]:
            del self.sought[path]


def is_of_package(path: str) -> bool:
    """Returns whether a path is that of a file of an installed package.

    What starts with every interpreter (`.pth`), and metadata, which many look all over, say nothing about who is used.
    """
    return _is_installed(path) and not path.endswith(".pth") and not any(folder in path for folder in _METADATA)


def _is_installed(path: str) -> bool:
    return any(folder in path for folder in PLACES_OF_PACKAGES) and is_installed(path)


def is_passing(status: os.stat_result) -> bool:
    """Returns whether what is read there is gone or another one next time: of a pipe, or of most devices."""
    if stat.S_ISCHR(status.st_mode):
        return status.st_rdev not in _devices_without_news()
    return stat.S_ISFIFO(status.st_mode) or stat.S_ISBLK(status.st_mode)


@cache
def _devices_without_news() -> frozenset[int]:
    found = set()
    for name in _WITHOUT_NEWS:
        with contextlib.suppress(OSError):
            found.add(os.stat(name).st_rdev)
    return frozenset(found)


def _reads(flags: int) -> bool:
    return not flags & (os.O_WRONLY | _PLACE_ONLY)


def stamp_of(status: os.stat_result) -> Stamp:
    """Returns what distinguishes this state of a file from others."""
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def mapped_files() -> set[str]:
    """Returns the files that are mapped into this process' memory; none where the system does not tell."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return set()
    fields = (line.split(maxsplit=5) for line in lines)
    return {found[5] for found in fields if len(found) == 6 and found[5].startswith("/")}
