"""Which environment variables chose the folder that a library read from: TORCH_HOME, HF_HOME, XDG_CACHE_HOME, HOME.

A library's own reads of variables say nothing about a model, and some happen when it is imported, before there is a
model. One counts if a file that was used lies in the folder that it names; where files outside all roots were used, so
does one that is not set and by its name would be a folder's, since it may choose another folder once it is set. Names
and paths arrive, names leave.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import AnyStr

from batch_export.sources.recorded import ALL_VARIABLES, is_of_session

_OF_A_FOLDER = re.compile("HOME|DIR|PATH|CACHE|ROOT|FOLDER|DATA|STORE|LOCATION", re.IGNORECASE)


def watch_reads(note: Callable[[str], None]) -> None:
    """Makes `os.environ` tell which variables are read; `ALL_VARIABLES` where somebody goes through them."""

    class Watched(os._Environ):  # type: ignore[type-arg]  # of texts or of bytes
        """`os.environ` with a note of what is asked for."""

        def __getitem__(self, key: AnyStr) -> AnyStr:
            if isinstance(key, str | bytes):
                note(os.fsdecode(key))
            value: AnyStr = super().__getitem__(key)
            return value

        def __delitem__(self, key: AnyStr) -> None:
            if isinstance(key, str | bytes):
                note(os.fsdecode(key))  # whether it is there is told by what is raised
            super().__delitem__(key)

        def __iter__(self) -> Iterator[AnyStr]:
            note(ALL_VARIABLES)
            return super().__iter__()

        def __len__(self) -> int:
            note(ALL_VARIABLES)
            return super().__len__()

        def __repr__(self) -> str:
            note(ALL_VARIABLES)
            return super().__repr__()

        @property
        def _data(self) -> dict[bytes, bytes]:
            """The dict behind it, which Python's own methods take one variable from."""
            if sys._getframe(1).f_globals is not vars(os):
                note(ALL_VARIABLES)
            kept: dict[bytes, bytes] = vars(self)["_data"]
            return kept

        @_data.setter
        def _data(self, data: dict[bytes, bytes]) -> None:
            vars(self)["_data"] = data

    os.environ.__class__ = Watched
    if os.supports_bytes_environ:
        os.environb.__class__ = Watched


def chose_a_folder(
    read: Collection[str], environment: Mapping[str, str], used: Collection[str], roots: Sequence[Path]
) -> set[str]:
    """Returns which variables count.

    Args:
        read: the names of those that libraries have read.
        environment: the variables as they were at the start.
        used: absolute paths of files.
        roots: folders of local modules: what only says where one of them lies chose nothing.
    """
    names = {name for name in read if not is_of_session(name)} - {ALL_VARIABLES}
    homes = [f"{root}{os.sep}" for root in roots]
    places = [(path, max((home for home in homes if path.startswith(home)), key=len, default="")) for path in used]
    found = {name for name in names if (value := environment.get(name)) and _holds(value, places)}
    if found or any(not home for _, home in places):
        found |= {name for name in names if not environment.get(name) and _OF_A_FOLDER.search(name)}
    return found


def _holds(value: str, places: Collection[tuple[str, str]]) -> bool:
    folder = os.path.abspath(os.path.expanduser(value))
    inside = tuple(f"{one.rstrip(os.sep)}{os.sep}" for one in {folder, os.path.realpath(folder)})
    return any(path.startswith(inside) and not home.startswith(inside) for path, home in places)
