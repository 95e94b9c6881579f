"""What processes note that a child forks: sets that are one in all of them.

Texts arrive in whichever process notes them; they leave in the one that was there first. A process that a model forks
(a pool's, a loader's of data) watches as its parent does, but in memory of its own. What it notes it writes to a file
without a name, which it has from its parent; a process that closes all its files is not heard any more. Only Linux has
such files.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable


class NotedSet(set[str]):
    """A set of texts of which other processes' are told, too.

    Args:
        notes: tell them.
        name: of the set among those of `notes`.
    """

    def __init__(self, notes: ForkedNotes, name: str) -> None:
        super().__init__()
        self._notes = notes
        self._name = name

    def add(self, text: str) -> None:
        """Adds one text."""
        if text not in self:
            super().add(text)
            self._notes.tell(self._name, text)

    def update(self, *several: Iterable[str]) -> None:
        """Adds several texts."""
        for texts in several:
            for text in texts:
                self.add(text)


class ForkedNotes:
    """Sets that this process and those that it forks add to."""

    def __init__(self) -> None:
        self._home = os.getpid()
        self._handle = -1
        self._file: tuple[int, int] | None = None
        self._sets: dict[str, NotedSet] = {}
        self._read = 0

    def open(self) -> None:
        """From now on this is the process that was there first."""
        self._home = os.getpid()
        if hasattr(os, "memfd_create"):
            import fcntl  # lazy: there is none on Windows

            self._handle = os.memfd_create("notes")
            fcntl.fcntl(self._handle, fcntl.F_SETFL, os.O_APPEND)
            self._file = self._identity()

    def shared(self, name: str) -> NotedSet:
        """A set of that name; it is empty, and there is one of each."""
        return self._sets.setdefault(name, NotedSet(self, name))

    def tell(self, name: str, text: str) -> None:
        """Writes down what another process than the first one has added to a set."""
        if self._file is None or os.getpid() == self._home:
            return
        with contextlib.suppress(OSError):
            if self._identity() == self._file:  # else it was closed, and another file has its number
                os.write(self._handle, json.dumps([name, text]).encode() + b"\n")

    def gather(self) -> None:
        """Adds what other processes have added meanwhile."""
        if self._file is None or os.getpid() != self._home:
            return
        with contextlib.suppress(OSError):
            if self._identity() != self._file:
                return
            content = os.pread(self._handle, os.fstat(self._handle).st_size - self._read, self._read)
            whole = content[: content.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                name, text = json.loads(line)
                self.shared(name).add(text)

    def _identity(self) -> tuple[int, int]:
        status = os.fstat(self._handle)
        return status.st_dev, status.st_ino
