"""What a child has made itself: folders, links, new names of what there was. And what was there before.

Paths of calls arrive before they are carried out. Whoever opens a path learns what it stands for: itself, a file under
an older name, or something that lies in what the child has made and is no condition of what it did.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_Identity = tuple[int, int]
"""Device and inode, which a file or folder keeps under its new name."""


class Made:
    """Notes on paths that were made. A call may fail, so that each is looked at again before it is believed."""

    def __init__(self) -> None:
        self._made: dict[str, _Identity | None] = {}
        self._names: dict[str, tuple[str, _Identity]] = {}

    def make(self, path: str, source: str = "") -> None:
        """Notes that something is to be at `path`: something new, where nothing is, or what `source` is now."""
        what = _identity(source) if source else None
        origin = self.origin(source) if what is not None else None
        self._made.pop(path, None)
        self._names.pop(path, None)
        if origin == path:
            return  # it has its name again
        if origin is not None and what is not None:
            self._names[path] = origin, what
        else:
            self._made[path] = what

    def origin(self, path: str) -> str | None:
        """Returns the path that was there before anything was made and has what is at `path` now.

        Returns:
            `path` itself where nothing was made on the way; None for what was made, or lies in a folder that was.
        """
        if not self._made and not self._names:
            return path
        for place in _and_above(path):
            self._forget_failed(place)
            if place in self._names:
                return self._names[place][0] + path[len(place) :]
            if place in self._made:
                real = os.path.realpath(path)
                return None if real == path or real.startswith(place + os.sep) else self.origin(real)
        return path

    def _forget_failed(self, place: str) -> None:
        """Forgets a call that has left something else at `place` than it would have."""
        what = self._names[place][1] if place in self._names else self._made.get(place)
        if what is not None and _identity(place) not in (None, what):
            self._names.pop(place, None)
            self._made.pop(place, None)


def _identity(path: str) -> _Identity | None:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _and_above(path: str) -> Iterator[str]:
    while path not in ("", os.sep):
        yield path
        path = os.path.dirname(path)
