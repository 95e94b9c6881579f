"""Locks between processes: advisory file locks, which the kernel lets go of when their holder dies.

The kernel's lock belongs to the open file, which a process that is forked meanwhile shares; so it is let go of in so
many words, and not only by closing the file. A path arrives, a held lock leaves as a context. Nothing is read from or
written to the lock files.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from batch_export.store.files import storing

_POLL_S = 0.005


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False, wait: bool = True) -> Iterator[bool]:
    """Holds the lock at `path` while the context lasts, and yields whether it was got (always, when `wait`).

    It ends with the context, whatever was forked in it and lives on: a helper process that a model started.
    On platforms without `flock` nothing is locked: actions may then be executed twice, with the same result.
    """
    if sys.platform == "win32":
        yield True
        return
    import fcntl  # lazy: the module exists on POSIX only

    with storing(path):
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            handle = os.open(path, flags, 0o644)
        except FileNotFoundError:  # someone removed the store under a run
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, flags, 0o644)
    try:
        mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(handle, mode if wait else mode | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        holder = os.getpid()
        try:
            yield True
        finally:
            if os.getpid() == holder:  # a process that was forked in the context may leave it too, by an exception
                fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def take_within(handle: int, seconds: float) -> bool:
    """Locks an open file as `take` does, as soon as nobody has it any more.

    Args:
        handle: the open file.
        seconds: how long it is waited for.

    Returns:
        Whether it was got in time.
    """
    deadline = time.monotonic() + seconds
    while not take(handle):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def take(handle: int) -> bool:
    """Locks an open file for as long as it is open here, or in a process that has inherited it, unless another has it.

    Returns:
        Whether it was got; always true on platforms and file systems without locks, where nobody can be told apart.
    """
    if sys.platform == "win32":
        return True
    import fcntl  # lazy: the module exists on POSIX only

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
