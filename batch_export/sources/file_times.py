"""What a file's times say about its content: which of them prove that nothing has changed since.

A file can change while its times stay: within the resolution of the clock, and through a memory map. A write through a
map moves the times when it is the first to its page since the kernel last wrote that page to the disk, which happens
after half a minute; in a file system in memory (tmpfs), which writes none, only the first one through each map does.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

_SETTLED_NS = 60_000_000_000
"""Twice what Linux waits before it writes a changed page to the disk (`vm.dirty_expire_centisecs`)."""
NEVER = 1 << 63
"""The time of a last change that no time comes after: the file's times tell nothing."""
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})
_MOUNTS = Path("/proc/self/mountinfo")


def stamp_of(status: os.stat_result) -> str:
    """Returns what is compared: times, size and inode."""
    return f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {status.st_ino}"


def last_change(status: os.stat_result) -> int:
    """Returns when a file last changed, in nanoseconds since the epoch; of one in memory a time that never comes."""
    return NEVER if _is_in_memory(status) else max(status.st_mtime_ns, status.st_ctime_ns)


def is_settled(change: int) -> bool:
    """Returns whether what changed then can be told by its stamp from what it becomes by any later change."""
    return time.time_ns() - change >= _SETTLED_NS


def _is_in_memory(status: os.stat_result) -> bool:
    return status.st_dev in _devices_in_memory()


@cache
def _devices_in_memory() -> frozenset[int]:
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:  # there is none outside Linux
        return frozenset()
    found = set()
    for line in lines:
        mount, _, source = line.partition(" - ")
        major, _, minor = mount.split(" ")[2].partition(":")
        if source.split(" ")[0] in _IN_MEMORY:
            found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)
