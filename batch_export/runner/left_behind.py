"""What a child has made, left behind, and looked for before: the next build finds it and goes another way.

Notes and names arrive, `(name, state)` pairs leave, see `asked.py`. What is made anew without being looked for
(an output, a log), added to (a table of results), or lies in a folder for temporary files is no condition of anything.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from pathlib import Path

from batch_export.runner.opened import Opened
from batch_export.sources.asked import made_as

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
_BYTECODE = "__pycache__"


def left_behind(
    opened: Mapping[str, Opened], sought: Collection[str], name_of: Callable[[str], str | None], roots: Sequence[Path]
) -> dict[str, str]:
    """Returns what is to be recorded: name -> state.

    Args:
        opened: what was opened or made.
        sought: what was looked for when it was not there.
        name_of: the name to record for a path; None when it does not count.
        roots: folders of local modules; what lies in one is not temporary.
    """
    wanted = set(sought)
    found: dict[str, str] = {}
    for path, note in [*opened.items()]:  # to look at a file is to open it
        if note.before is not None or not (note.wrote and note.whole) or not _is_sought(path, note, wanted):
            continue
        if _BYTECODE in path.split(os.sep) or is_temporary(path, roots) or not os.path.isfile(path):
            continue
        name = name_of(path)
        state = made_as(path)
        if name is not None and state:
            found[name] = state
    return found


def _is_sought(path: str, note: Opened, sought: Collection[str]) -> bool:
    """Whether it was looked for, or a folder above it was and what was put into that was read (an archive's parts)."""
    if path in sought:
        return True
    return note.read and any(str(folder) in sought for folder in Path(path).parents)


def is_temporary(path: str, roots: Sequence[Path]) -> bool:
    """Returns whether a path lies in a folder for temporary files, and in no root there."""
    inside = [str(root) + os.sep for root in roots if path.startswith(str(root) + os.sep)]
    return any(path.startswith(folder) and not any(one.startswith(folder) for one in inside) for folder in _folders())


@cache
def _folders() -> tuple[str, ...]:
    names = (tempfile.gettempdir(), *_TEMPORARY)
    return tuple({folder + os.sep for name in names for folder in (os.path.abspath(name), os.path.realpath(name))})
