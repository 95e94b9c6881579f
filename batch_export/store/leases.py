"""Leases: locks by file for folders that several machines share, where the kernel's locks may reach one machine only.

A path arrives, a held lease leaves as a context. The owner renews its lease while it holds it; a waiter takes one over
when its owner is a process of this machine that is gone, or when it has not been renewed for `expiry_s` seconds of the
waiter's own monotonic clock, so clocks that differ or jump do no harm.

Of several waiters one takes over: the one that makes the file named after the old lease's token, with O_EXCL, and finds
that lease unchanged afterwards. It puts its own in place by a rename, so there is no moment without a lease. That file
is a lease too, so a waiter that dies in the middle is taken over in its turn. What is needed of the file system is
`open` with O_EXCL and a `rename` that replaces in one step. An owner that was silent for `expiry_s` and yet lives goes
on with its work: only then is an action executed twice, with the same result.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from batch_export.errors import StoreError
from batch_export.store.files import storing

EXPIRY_S = 60.0
_POLL_S = 0.1
_TOKEN = re.compile("[0-9A-Za-z-]{1,64}")
"""What is read from a lease becomes part of a file's name."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease.

    Attributes:
        host: the machine, its start and its process numbers' namespace: containers may share a host name.
        pid: its process.
        started: distinguishes a process from a later one with the same number.
        beat: counts renewals.
        token: of this lease alone.
    """

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
    me = _new_owner()
    _acquire(path, path, me, expiry_s)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(path, me, ended, expiry_s), daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        _release(path, me)


def _acquire(path: Path, base: Path, me: Owner, expiry_s: float) -> None:
    """Returns when `path` is ours; `base` is the lease that all this is about."""
    seen = ""
    seen_at = time.monotonic()
    while not _create(path, me):
        state, token, owner = _look(path)
        if state != seen:
            seen, seen_at = state, time.monotonic()
        if token and ((owner is not None and _is_dead(owner)) or time.monotonic() - seen_at > expiry_s):
            if _take_over(path, base, token, me, expiry_s):
                return
            continue
        time.sleep(_POLL_S if token else 0.001)


def _create(path: Path, me: Owner) -> bool:
    with storing(path):
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            return False
        with os.fdopen(handle, "wb") as stream:
            stream.write(msgspec.json.encode(me))
    return _look(path)[1] == me.token  # unless this process slept so long that somebody took the empty file over


def _take_over(path: Path, base: Path, token: str, me: Owner, expiry_s: float) -> bool:
    """Puts our lease in the place of the one with this token, unless somebody else did or its owner let go of it."""
    claim = base.with_name(f"{base.name}.{token}")
    claimant = _new_owner()
    _acquire(claim, base, claimant, expiry_s)
    try:
        if _look(path)[1] != token:
            return False
        aside = base.with_name(f"{base.name}.{me.token}")
        with storing(path):
            aside.write_bytes(msgspec.json.encode(me))
            os.replace(aside, path)
        return True
    finally:
        _release(claim, claimant)


def _release(path: Path, me: Owner) -> None:
    with contextlib.suppress(OSError, StoreError):
        if _look(path)[1] == me.token:
            path.unlink()


def _beat(path: Path, me: Owner, ended: threading.Event, expiry_s: float) -> None:
    renewed_at = time.monotonic()
    while not ended.wait(expiry_s / 4):
        with contextlib.suppress(OSError, StoreError):
            if time.monotonic() - renewed_at > expiry_s or _look(path)[1] != me.token:
                return  # it was or may be taken over: the work goes on, and is done twice at worst
            me = replace(me, beat=me.beat + 1)
            aside = path.with_name(f"{path.name}.{me.token}")
            aside.write_bytes(msgspec.json.encode(me))
            os.replace(aside, path)
            renewed_at = time.monotonic()


def _look(path: Path) -> tuple[str, str, Owner | None]:
    """Returns what changes whenever the lease does, its token, and its owner if that can be read.

    A lease whose owner died before it had written a word has its file for a token. No file: no token.
    """
    try:
        with path.open("rb") as stream:
            data, status = stream.read(), os.fstat(stream.fileno())
    except PermissionError as error:
        raise StoreError(
            f"the lease {path} may not be read. Next step: give everyone who uses the store the right to, or remove it"
        ) from error
    except OSError:
        return "", "", None
    try:
        owner = msgspec.json.decode(data, type=Owner)
    except msgspec.MsgspecError:
        owner = None
    if owner is None or not _TOKEN.fullmatch(owner.token):
        name = f"unwritten-{status.st_ino}-{status.st_mtime_ns}"
        return name, name, None
    return f"{owner.token} {owner.beat}", owner.token, owner


def _new_owner() -> Owner:
    return Owner(_here(), os.getpid(), _started(os.getpid()), token=uuid.uuid4().hex)


def _is_dead(owner: Owner) -> bool:
    return owner.host == _here() and _started(owner.pid) != owner.started


def _here() -> str:
    """Names whatever it is within which a process number means one process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _started(pid: int) -> str:
    """Returns when a process of this machine started, in the kernel's ticks; empty when it is gone or unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
