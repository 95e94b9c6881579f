"""How much memory a child has for itself: private bytes, so that pages shared with the forkserver are not held
against it.

A process id arrives, bytes leave. Where the system has no such figure the answer is None, and no limit is enforced.
"""

from __future__ import annotations

from pathlib import Path


def private_bytes(pid: int) -> int | None:
    """Returns the private memory of a process and of its descendants, or None when it is gone or cannot be read."""
    total: int | None = None
    todo = [pid]
    while todo:
        process = todo.pop()
        own = _own(process)
        if own is not None:
            total = own + (total or 0)
        todo.extend(_children(process))
    return total


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
