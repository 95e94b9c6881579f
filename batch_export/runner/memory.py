"""How much memory a child has for itself: private bytes, so that pages shared with the forkserver are not held
against it.

A process id arrives, bytes leave. Where the system has no such figure the answer is None, and no limit is enforced.
For private bytes the kernel looks at every page of a process, which holds that up and takes 10 to 20 ms where torch is
loaded; what it has in memory at all is a number that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_NEWS = 64 << 20
"""Bytes of growth from which on the private ones are asked for."""


class PrivateMemory:
    """The private memory of a process and of its descendants, looked at closely when there may be news.

    Args:
        pid: of the process.
        limit: bytes; whether there is more is told at each look, below it growth of less than 64 MiB may be missed.
    """

    def __init__(self, pid: int, limit: int) -> None:
        self._pid = pid
        self._limit = limit
        self._held = 0
        self._used = 0

    def look(self) -> int:
        """Returns the bytes when looked at closely last; now, where they may be more than the limit or have grown."""
        held = _sum(self._pid, _held)
        if held is None or held > self._limit or held > self._held + _NEWS:
            self._held = held or 0
            self._used = private_bytes(self._pid) or 0
        return self._used


def private_bytes(pid: int) -> int | None:
    """Returns the private memory of a process and of its descendants, or None when it is gone or cannot be read."""
    return _sum(pid, _own)


def _sum(pid: int, of: Callable[[int], int | None]) -> int | None:
    total: int | None = None
    todo = [pid]
    while todo:
        process = todo.pop()
        own = of(process)
        if own is not None:
            total = own + (total or 0)
        todo.extend(_children(process))
    return total


def _held(pid: int) -> int | None:
    """What a process has in memory and in the swap, shared or not: its private bytes are among them."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = (line.split() for line in text.splitlines() if line.startswith(("VmRSS:", "VmSwap:", "HugetlbPages:")))
    return sum(int(words[1]) * 1024 for words in lines)


def _own(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return None
    lines = (line.split() for line in text.splitlines() if line.startswith(("Private_", "Swap:")))
    return sum(int(words[1]) * 1024 for words in lines)


def _children(pid: int) -> list[int]:
    try:
        threads = [path / "children" for path in Path(f"/proc/{pid}/task").iterdir()]
        return [int(word) for path in threads for word in path.read_text(encoding="ascii").split()]
    except OSError:
        return []
