"""What a path is to whoever asks about it without opening it: nothing, a file of some size, a folder, a link; and which
extended attributes of a user's it has.

Paths arrive, short texts leave, which say by themselves how exactly somebody has asked.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Literal

from batch_export.digest import digest_value
from batch_export.sources.file_digests import content_digest
from batch_export.sources.name_texts import name_of, text_of

How = Literal["kind", "status", "link", "attributes"]
"""access(2) learns what kind a path is, stat(2) its size too, lstat(2) and readlink(2) where a link leads; getxattr(2)
and listxattr(2) extended attributes, of which those of the system do not count.
"""

ABSENT = "absent"
"""There is nothing; in place of the digest of a file that was looked for, too."""
_FILE, _LINK, _ATTRIBUTES, _MADE = "file", "link", "attributes", "made as"
CHANGED, ALTERED = "changed", "altered"
"""What times tell of: when a file's content was written last (`st_mtime`), or anything of it set (`st_ctime`)."""
_ORDERS = tuple(f"{verb} {than}" for verb in (CHANGED, ALTERED) for than in ("before", "with", "after"))
"""Begin what somebody learns who compares the times of two files; the other one's path follows, from the file's
folder.
"""
_NO_LINK = "no link, "
"""Begins what somebody learns who does not follow links (lstat(2), readlink(2)) where there is none; what there is
follows. Whoever follows them (stat(2), access(2)) learns of what they lead to alone.
"""
_OF_USERS = "user."


def state_of(path: str, how: How) -> str:
    """Returns what is at `path`. Times do not count, and a size only where it is a file's."""
    if how == "link":
        try:
            return f"{_LINK} {text_of(os.readlink(path))}"
        except (OSError, ValueError):
            return _NO_LINK + state_of(path, "status")
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ABSENT
    if how == "attributes":
        return f"{_ATTRIBUTES} {_attributes(path)}"
    if stat.S_ISREG(found.st_mode):
        return _FILE if how == "kind" else f"{_FILE} {found.st_size}"
    return "folder" if stat.S_ISDIR(found.st_mode) else "other"


def made_as(path: str) -> str:
    """Returns the state of a file that was not there, and that whoever looked for it has made; empty if it is gone."""
    try:
        return f"{_MADE} {content_digest(Path(path))}"
    except OSError:
        return ""


def time_of(path: str, what: str) -> int:
    """Returns when a file was changed, or altered, in nanoseconds."""
    status = os.stat(path)
    return status.st_mtime_ns if what == CHANGED else status.st_ctime_ns


def order_of(path: str, other: str, what: str) -> str:
    """Returns whether a file was changed, or altered, last before or after another one, or at the same time.

    Args:
        path: of the file.
        other: the other one's, from the folder of the file.
        what: `CHANGED` or `ALTERED`.
    """
    try:
        own, others = time_of(path, what), time_of(os.path.join(os.path.dirname(path), other), what)
    except (OSError, ValueError):
        return ABSENT
    return f"{what} {('before', 'with', 'after')[(own >= others) + (own > others)]} {text_of(other)}"


def _attributes(path: str) -> str:
    try:
        names = sorted(name for name in os.listxattr(path) if name.startswith(_OF_USERS))
        return digest_value([(text_of(name), os.getxattr(path, name).hex()) for name in names]) if names else "none"
    except (OSError, AttributeError):  # no such thing on this file system, or on this kind of system
        return "none"


def state_now(path: str, state: str) -> str:
    """Returns what is at `path` now, as exactly as `state` was learned.

    What was made where nothing was is the same where nothing is: it would be made again.
    """
    if state.startswith(f"{_MADE} "):
        return (made_as(path) or state_of(path, "status")) if os.path.lexists(path) else state
    if state.startswith(_ORDERS):
        what, _, other = state.split(" ", 2)
        return order_of(path, name_of(other), what)
    word = state.partition(" ")[0]
    if word == _ATTRIBUTES:
        return state_of(path, "attributes")
    if word == _LINK or state.startswith(_NO_LINK):
        found = state_of(path, "link")
        return without_size(found) if state == _NO_LINK + _FILE else found
    return state_of(path, "kind" if state == _FILE else "status")


def without_size(state: str) -> str:
    """Returns the state of a file as one learns it who does not ask for its size; others as they are."""
    if state.startswith(_NO_LINK):
        return _NO_LINK + without_size(state.removeprefix(_NO_LINK))
    return _FILE if state.startswith(f"{_FILE} ") else state


def follows_from_content(state: str) -> bool:
    """Whether what is read there, or in a folder there, implies it."""
    return state != ABSENT and not state.startswith((f"{_ATTRIBUTES} ", f"{_LINK} ", _NO_LINK, *_ORDERS))


def of_a_step(state: str) -> str:
    """Returns what whoever goes down a path learns of a step that was asked about without following links.

    Where there is no link the way goes on, and that there might be one says nothing to who only wants the way's end.
    """
    return state.removeprefix(_NO_LINK)


def leads_on(state: str) -> bool:
    """Whether it is a link's."""
    return state.startswith(f"{_LINK} ")


def target_of(state: str) -> str:
    """Returns where a link leads, as it is written in the link."""
    return name_of(state.removeprefix(f"{_LINK} "))
