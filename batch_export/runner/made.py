"""What a child has made itself: folders, links, new names of what there was. And what was there before.

Paths of calls arrive before they are carried out. Whoever opens a path learns what it stands for: itself, a file under
an older name, or something that lies in what the child has made and is no condition of what it did.
"""

from __future__ import annotations

import os
from collections.abc import Iterator


class Made:
    """Notes on paths that were made."""

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._names: dict[str, str] = {}

    def make(self, path: str, source: str = "") -> None:
        """Notes that something comes to be at `path`: something new, or what `source` is now."""
        origin = self.origin(source) if source and os.path.lexists(source) else None
        self._made.discard(path)
        self._names.pop(path, None)
        if origin == path:
            return  # it has its name again
        if origin is not None:
            self._names[path] = origin
        elif source or not os.path.lexists(path):
            self._made.add(path)

    def origin(self, path: str) -> str | None:
        """Returns the path that was there before anything was made and has what is at `path` now.

        Returns:
            `path` itself where nothing was made on the way; None for what was made, or lies in a folder that was.
        """
        if not self._made and not self._names:
            return path
        for place in _and_above(path):
            if place in self._names:
                return self._names[place] + path[len(place) :]
            if place in self._made:
                real = os.path.realpath(path)
                return None if real == path or real.startswith(place + os.sep) else self.origin(real)
        return path


def _and_above(path: str) -> Iterator[str]:
    while path not in ("", os.sep):
        yield path
        path = os.path.dirname(path)
