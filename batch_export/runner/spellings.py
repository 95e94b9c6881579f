"""One file's path in the several ways that calls write it. Paths arrive, the paths that they stand for leave."""

from __future__ import annotations

import os
import re


def without_ways_up(path: str) -> str:
    """Returns where a path leads that goes up again (`/etc/../home/x`): its beginning says nothing about it."""
    return os.path.realpath(path) if os.pardir in path.split(os.sep) else path


def in_one_spelling(path: str) -> str:
    """Returns a path without folders that are `.` or nothing; what follows them, and `..`, depends on links."""
    while "/./" in path:
        path = path.replace("/./", "/")
    return re.sub("//+", "/", path) if "//" in path else path


def through_links_of_processes(path: str, task: int | None = None) -> str:
    """Returns where a path leads that goes through a process' folder or descriptor, such as `/proc/self/cwd/data`.

    Args:
        path: absolute.
        task: who uses it; None: this process.
    """
    if not path.startswith(("/proc/", "/dev/fd/")):
        return path
    if path.startswith("/dev/fd/"):
        path = f"/proc/self/fd/{path.removeprefix('/dev/fd/')}"
    parts = path.split("/")
    if len(parts) < 4 or not {"cwd", "root", "fd"}.intersection(parts[3:6]):
        return path
    if parts[2] in ("self", "thread-self"):
        parts[2] = str(task or os.getpid())
    return os.path.realpath("/".join(parts))
