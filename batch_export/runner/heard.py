"""What Python tells of this process: the folders that it lists, with what they held, and what the user's own code looks
for.

Python's events and a few of its functions are heard; paths and names leave. The kernel (`witness.py`) tells of more,
but not for whose sake, nor before a listing what the folder held.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

from batch_export.runner.asked_times import asked_for, of_files
from batch_export.runner.askers import Askers
from batch_export.runner.audited import listen
from batch_export.runner.forked_notes import ForkedNotes
from batch_export.runner.functions_of_os import ToldFunction
from batch_export.runner.repeated_calls import SUPPORTED, caller_of
from batch_export.runner.spellings import through_links_of_processes
from batch_export.runner.system_folders import PLACES_OF_PACKAGES
from batch_export.sources.asked import ALTERED, CHANGED

_LISTINGS = ("os.listdir", "os.scandir")
_REMOVALS = ("os.remove", "os.rmdir", "os.rename")
_QUESTIONS = ("stat", "fstat", "lstat", "access", "readlink", "chdir")
"""Functions of `os` by which code asks about one path, or goes there; those of `os.path` and `pathlib` call them."""
_METADATA = (".dist-info", ".egg-info")


class Heard:
    """Listens to Python.

    Args:
        askers: tell who asks.
        notes: what processes that this one forks hear; None: they are not heard.

    Attributes:
        listed: the folders whose listings count.
        looked_into: those that the user's own code listed.
        listings: how often each folder was listed by Python.
        entries: the names in a folder when it was listed first, where that counts.
        removed: what was removed, or got another name.
        looked_for: what the user's own code opened or asked about, in vain or not.
        missed: what it, or a library's function that it called, asked about or opened among installed packages, in
            vain.
        timed: what the user's own code asked for a time of, as far as can be told, by `CHANGED` and `ALTERED`.
        for_user: what a library asked about on its behalf.
        opened: what a library opened so.
    """

    def __init__(self, askers: Askers, notes: ForkedNotes | None = None) -> None:
        notes = notes or ForkedNotes()
        self.listed: set[str] = notes.shared("listed")
        self.looked_into: set[str] = notes.shared("looked into")
        self.listings: Counter[str] = Counter()
        self.entries: dict[str, frozenset[str]] = {}
        self.removed: set[str] = set()
        self.looked_for: set[str] = notes.shared("looked for")
        self.missed: set[str] = notes.shared("missed")
        self.timed: dict[str, set[str]] = {what: notes.shared(what) for what in (CHANGED, ALTERED)}
        self.for_user: set[str] = notes.shared("for the user")
        self.opened: set[str] = notes.shared("opened for the user")
        self._askers = askers
        self._listing = threading.local()
        self._lstat: Callable[[str], object] = os.lstat

    def listen(self) -> None:
        """Starts listening; there is no way to stop."""
        self._lstat = os.lstat  # as it is before anybody listens
        listen(_LISTINGS, self._hear_listing)
        listen(("open",), self._hear_opening)
        listen(_REMOVALS, self._hear_removal)
        for name in filter(functools.partial(hasattr, os), _QUESTIONS):
            own = getattr(os, name)
            noting = self._noting(own)
            for functions in SUPPORTED:
                functions.update({noting} if own in functions else ())
            setattr(os, name, noting)

    def _hear_listing(self, event: str, arguments: tuple[Any, ...]) -> None:
        path = "." if arguments[0] is None else arguments[0]
        name = absolute(f"/proc/self/fd/{path}" if isinstance(path, int) else path)
        self.listings[name] += 1
        frame = caller_of(sys._getframe(2))
        if getattr(self._listing, "is_ours", False) or not self._askers.count(frame):
            return
        self.listed.add(name)
        if self._askers.is_users_own(frame):
            self.looked_into.add(name)
        if name not in self.entries:
            self._listing.is_ours = True
            try:
                self.entries[name] = frozenset(os.listdir(name))
            except OSError:  # as whoever lists it will hear
                self._note(name, frame, self.for_user)
            finally:
                self._listing.is_ours = False
        # Entries have a `stat` of their own, of which nobody tells.
        if event == "os.scandir" and self._askers.is_users_own(frame, directly=True):
            for what in of_files(frame, self._askers):
                self.timed[what].update(os.path.join(name, one) for one in self.entries.get(name, ()))

    def _hear_removal(self, event: str, arguments: tuple[Any, ...]) -> None:
        path, folder = arguments[0], arguments[2 if event == "os.rename" else 1]
        if isinstance(path, str | bytes | os.PathLike):
            start = f"/proc/self/fd/{folder}" if isinstance(folder, int) and folder >= 0 else os.curdir
            self.removed.add(absolute(os.path.join(start, os.fsdecode(path))))

    def _hear_opening(self, _: str, arguments: tuple[Any, ...]) -> None:
        self._note(arguments[0], sys._getframe(2), self.opened)

    def _noting(self, ask: Callable[..., Any]) -> ToldFunction:
        def noted(*args: Any, **named: Any) -> Any:
            frame = sys._getframe(2)
            path = args[0] if args else named.get("path", named.get("fd"))
            if isinstance(path, int):  # an open file, whose opening was heard
                for what in asked_for(frame, self._askers):
                    self.timed[what].update(filter(None, [_path_of(path)]))
                return ask(*args, **named)
            if isinstance(path, str | bytes | os.PathLike) and isinstance(named.get("dir_fd"), int):
                path = os.path.join(_path_of(named["dir_fd"]), os.fsdecode(path))
            self._note(path, frame, self.for_user)
            if isinstance(path, str | bytes | os.PathLike):
                for what in asked_for(frame, self._askers):
                    self.timed[what].add(absolute(path))
            return ask(*args, **named)

        return ToldFunction(ask, noted)

    def _note(self, path: object, frame: FrameType | None, by_library: set[str]) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        is_own = self._askers.is_users_own(frame)
        if not is_own and not self._askers.is_for_user(frame):
            return
        name = absolute(path)
        (self.looked_for if is_own else by_library).add(name)
        package = _package_of(name)
        if package is None or _is_there(name, self._lstat):
            return
        # The toolchain looks for much beside its own modules, and in metadata.
        of_others = not package.endswith(_METADATA) and not self._askers.is_of_toolchain(package)
        if is_own or self._askers.is_called_by_user(frame, by_toolchain=of_others):
            self.missed.add(name)


def _package_of(path: str) -> str | None:
    """The top-level name below the folder of installed packages that a path is in; None where it is in none."""
    for folder in PLACES_OF_PACKAGES:
        _, found, rest = path.partition(folder)
        if found:
            return rest.partition(os.sep)[0]
    return None


def _path_of(handle: int) -> str:
    """The path of an open file; empty where it has none."""
    try:
        path = os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return ""
    return path if os.path.isabs(path) else ""


def _is_there(path: str, ask: Callable[[str], object]) -> bool:
    try:
        ask(path)
    except (OSError, ValueError):
        return False
    return True


def as_heard(path: str) -> str:
    """Returns an absolute path that the kernel told of as it is noted here: without ways up (`proj/../data`)."""
    return os.path.normpath(path)


def absolute(path: str | bytes | os.PathLike[str]) -> str:
    """Returns a path as it is recorded."""
    return through_links_of_processes(os.path.abspath(os.fsdecode(path)))
