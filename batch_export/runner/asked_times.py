"""In which order files were changed last, where the user's own code asks for it: `max(paths, key=os.path.getmtime)`.

Frames of calls and paths arrive; a yes or no, and `(path, state)` pairs leave. Times themselves differ from checkout to
checkout and say nothing; which of two files is the newer one decides what is loaded, or made anew.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from types import FrameType

from batch_export.sources.asked import order_of

_NAMES = frozenset({"getmtime", "getctime", "st_mtime", "st_mtime_ns", "st_ctime", "st_ctime_ns"})
_BETWEEN = frozenset({"os", "posixpath", "genericpath", "pathlib", "glob", "functools"})
"""Modules by which code asks about paths; others that do so (what shows source lines, say) look for something else."""


def asks_for_times(frame: FrameType | None) -> bool:
    """Whether the code that made a call names a file's time. It may want something else of the file, too.

    Args:
        frame: the caller's.
    """
    while frame is not None:
        if frame.f_code.co_name in _NAMES:
            return True
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _BETWEEN:
            return not _NAMES.isdisjoint(frame.f_code.co_names)
        frame = frame.f_back
    return False


def orders(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields for each of the files but the oldest one in which order it and the next older one were changed."""
    found: list[tuple[int, str]] = []
    for path in dict.fromkeys(paths):
        try:
            found.append((os.stat(path).st_mtime_ns, path))
        except (OSError, ValueError):
            continue
    found.sort()
    for (_, older), (_, newer) in itertools.pairwise(found):
        yield newer, order_of(newer, os.path.relpath(older, os.path.dirname(newer)))
