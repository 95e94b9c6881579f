"""Which digest says what a process found in a file that it opened, and which files nobody can vouch for.

Arrives: a path and what was noted when it was opened. Leaves: the digest of its content, or the word that it was not
there, changed meanwhile, cannot be read, or is a pipe; nothing for what the process itself has made.
"""

from __future__ import annotations

import os
from pathlib import Path

from batch_export.digest import Digest
from batch_export.runner.opened import Opened, Stamp, stamp_of
from batch_export.sources.asked import ABSENT
from batch_export.sources.file_digests import content_digest
from batch_export.sources.recorded import CHANGED, PASSING, UNREADABLE


class DigestsOfOpened:
    """Remembers what it has told of, so that each file is told of once.

    Attributes:
        changed: files found to have changed since they were read, each once.
        passing: pipes and devices that were read, each once.
    """

    def __init__(self) -> None:
        self.changed: list[str] = []
        self.passing: list[str] = []
        self._told: set[str] = set()

    def of(self, path: Path, note: Opened | None, by_its_name: Opened | None, *, exactly: bool) -> Digest:
        """Returns the digest to record; empty for what was made here.

        Args:
            path: the file, without links.
            note: what was noted when it was opened; None: it is a module's, and nothing was noted.
            by_its_name: what was noted of the path itself, where the note is of a link to it.
            exactly: whether the note is of the very moment of opening.
        """
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
            return ABSENT if note.before is None else "" if note.wrote else self.note_change(path)
        if note.came_later() and (by_its_name or note).came_later():
            return self.note_change(path)
        if _is_another(path, note, stamp_of(status), exactly=exactly):
            return self.note_change(path)
        return _content(path)

    def note_change(self, path: Path) -> Digest:
        """Tells that a file or a folder is another one than was read; returns what is recorded then."""
        return self._unsure(path, self.changed, CHANGED)

    def _unsure(self, path: Path, names: list[str], digest: Digest) -> Digest:
        if str(path) not in self._told:
            self._told.add(str(path))
            names.append(str(path))
        return digest


def _is_another(path: Path, note: Opened, now: Stamp, *, exactly: bool) -> bool:
    if not note.is_another(now, exactly=exactly):
        return False
    if note.is_another(now, exactly=False):
        return True
    try:
        return stamp_of(os.stat(path)) == now  # there are file systems that say another time at each look
    except OSError:
        return True


def _content(path: Path) -> Digest:
    """The digest of a file that was there; empty where none is now."""
    try:
        return content_digest(path) if path.is_file() else ""
    except OSError:
        return UNREADABLE
