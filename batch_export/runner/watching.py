"""What this process, and those that it starts, open, make and ask about: the kernel's word, or what Python tells.

Installed in a child before the model's builder runs; it watches and never forbids anything. The notes are the kernel's
(`witness.py`); where it gives none, they are those of Python's audit hook and of the files mapped into memory.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from batch_export.runner import repeated_calls
from batch_export.runner.audited import listen
from batch_export.runner.heard import Heard, absolute
from batch_export.runner.kernel_filter import be_watched
from batch_export.runner.listed_folders import listed_elsewhere
from batch_export.runner.opened import Notes, Opened, mapped_files
from batch_export.runner.recorded_names import Names
from batch_export.runner.witness import ask, forget_since
from batch_export.sources.asked import How

_MADE = ("os.mkdir", "os.rename", "os.link", "os.symlink")
_MADE_UNHEARD = ("mkfifo", "mknod")
"""Functions of `os` that make something and raise no event."""
_NAMELESS = getattr(os, "O_TMPFILE", 0)


class Watching:
    """Begins with `begin`; there is no way to stop.

    Args:
        roots: folders of local modules.
        names: tell what may count.
        heard: notes of what is listed and asked for, which is what the kernel's word is completed by and completes.

    Attributes:
        opened: path -> note, as of the last `look`.
        asked: path, how it was asked about -> what was there; as of the last `look`, empty without the kernel.
        sought: what was looked for when it was not there.
        of_packages: files of installed packages that other processes opened.
        has_started_python: whether another process executed Python, which looks for modules by itself.
        unseen: why files may be missed that Python does not open itself; empty when none is.
    """

    def __init__(self, roots: Sequence[Path], names: Names, heard: Heard) -> None:
        self._roots = tuple(roots)
        self._names = names
        self._heard = heard
        self._notes = Notes(names.is_ignored)
        self._channel: socket.socket | None = None
        self.opened: Mapping[str, Opened] = {}
        self.asked: dict[tuple[str, How], str] = {}
        self.sought: Collection[str] = ()
        self.of_packages: frozenset[str] = frozenset()
        self.has_started_python = False
        self.unseen = ""

    @property
    def is_by_kernel(self) -> bool:
        """Whether the kernel tells."""
        return self._channel is not None

    def begin(self, channel: socket.socket | None = None) -> None:
        """Starts watching.

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

    def look(self) -> Mapping[str, Opened]:
        """Asks what was opened so far: path -> note."""
        if self._channel is not None:
            told = ask(self._channel)
            self.unseen = told.blind
            self.of_packages = frozenset(told.of_packages)
            self.asked = {(path, how): state for path, how, state in told.asked}
            self.sought = told.sought
            self.has_started_python = any(process != os.getpid() for process in told.interpreters)
            self._heard.listed |= listed_elsewhere(told, self._heard, self._roots)
            self.opened = told.files
            return self.opened
        for name in mapped_files():
            if name not in self._notes.files and self._names.may_count(name):
                self._notes.add(name, os.O_RDONLY)
        self._notes.mark()
        self.sought = self._notes.sought
        self.opened = self._notes.files
        return self.opened

    def set_aside(self) -> None:
        """Says that what was opened since the last `look` was not opened for the model."""
        if self._channel is not None:
            forget_since(self._channel)
        else:
            self._notes.rewind()

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
