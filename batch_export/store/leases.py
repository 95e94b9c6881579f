"""Leases: locks by file for folders that several machines share, where the kernel's locks may reach one machine only.

A path arrives, a held lease leaves as a context. The owner renews its lease while it holds it; a waiter takes one over
when its owner is a process of this machine that is gone, or when it has not been renewed for `expiry_s` seconds of the
waiter's own monotonic clock, so clocks that differ or jump do no harm. Two waiters that take over at the same instant
may both proceed: the action is then executed twice, with the same result.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from batch_export.store.files import storing

EXPIRY_S = 60.0
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease; `started` tells a process from a later one with the same number; `beat` counts renewals."""

    host: str
    pid: int
    started: str
    beat: int = 0
    token: str = field(default="")


@contextlib.contextmanager
def leased(path: Path, *, expiry_s: float = EXPIRY_S) -> Iterator[None]:
    """Holds the lease at `path` while the context lasts; waits for as long as its owner renews it.

    Args:
        path: the lease's file; its folder exists.
        expiry_s: how long an owner may be silent.
    """
    me = Owner(socket.gethostname(), os.getpid(), _started(os.getpid()), token=uuid.uuid4().hex)
    _acquire(path, me, expiry_s)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(path, me, ended, expiry_s / 4), daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        owner = _read(path)
        if owner is not None and owner.token == me.token:
            with contextlib.suppress(OSError):
                path.unlink()


def _acquire(path: Path, me: Owner, expiry_s: float) -> None:
    seen: Owner | None = None
    seen_at = time.monotonic()
    while True:
        with storing(path):
            try:
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            except FileExistsError:
                handle = -1
            if handle >= 0:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(msgspec.json.encode(me))
                return
        owner = _read(path)
        if owner != seen:
            seen, seen_at = owner, time.monotonic()
        if (owner is not None and _is_dead(owner)) or time.monotonic() - seen_at > expiry_s:
            _take_away(path, owner)
            continue
        time.sleep(_POLL_S)


def _take_away(path: Path, owner: Owner | None) -> None:
    """Removes the lease if it is still the one that was judged: by a rename, which only one waiter can do."""
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with contextlib.suppress(OSError):
        os.rename(path, aside)
        taken = _read(aside)
        if taken is not None and (owner is None or taken.token != owner.token):
            with contextlib.suppress(OSError):  # a new owner was faster: it gets its lease back
                os.link(aside, path)
        aside.unlink()


def _beat(path: Path, me: Owner, ended: threading.Event, every_s: float) -> None:
    beat = 0
    while not ended.wait(every_s):
        beat += 1
        owner = _read(path)
        if owner is None or owner.token != me.token:
            return  # it was taken over, rightly or not: the work goes on, and is done twice at worst
        renewed = Owner(me.host, me.pid, me.started, beat, me.token)
        aside = path.with_name(f"{path.name}.{me.token}")
        with contextlib.suppress(OSError):
            aside.write_bytes(msgspec.json.encode(renewed))
            os.replace(aside, path)


def _read(path: Path) -> Owner | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Owner)
    except (OSError, msgspec.MsgspecError):
        return None


def _is_dead(owner: Owner) -> bool:
    return owner.host == socket.gethostname() and _started(owner.pid) != owner.started


def _started(pid: int) -> str:
    """Returns when a process of this machine started, in the kernel's ticks; empty when it is gone or unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
