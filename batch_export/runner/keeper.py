"""The keeper: the process between the forkserver and one child, which sees to it that nothing of the child is left.

A function to run in the child arrives; the child's end goes to the `fate` pipe, after every process that it started is
gone, those included that made themselves a session of their own. On Linux orphans of the child come to the keeper
(PR_SET_CHILD_SUBREAPER), elsewhere the child's process group has to do. It is also who watches what the child opens
(`witness.py`). Single-threaded; it runs no model.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from batch_export.runner.witness import Witness

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_LIMIT_S = 10.0


def keep(
    work: Callable[[], None],
    fate: int,
    parent: int,
    *,
    inherited: tuple[int, ...] = (),
    witness: Witness | None = None,
) -> NoReturn:
    """Runs `work` in a child of this process, reports the child's start and end, and never returns.

    Args:
        work: what the child does.
        fate: takes `pid CHILD KEEPER`, then `exit CODE` (negative for a signal).
        parent: the process that has forked this one; its end is that of this process and the child.
        inherited: descriptors that are the child's alone.
        witness: watches what the child opens.
    """
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until there is a handler that ends the child too
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(status)  # it went before the kernel could know that we belong to it
        mine = os.getpid()
        child = os.fork()
        if child == 0:
            _become_child(work, mine)
        signal.signal(signal.SIGTERM, lambda *_: _give_up(child))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for handle in inherited:
            os.close(handle)
        _tell(fate, f"pid {child} {mine}\n")
        code = _wait(child) if witness is None else _wait_and_watch(child, witness)
        sweep(child)
        _tell(fate, f"exit {code}\n")
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def sweep(child: int) -> None:
    """Ends every descendant that is left, and waits until they are gone."""
    deadline = time.monotonic() + _SWEEP_LIMIT_S
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    while time.monotonic() < deadline:
        for pid in _children():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.005)


def _wait(child: int) -> int:
    """Waits for the child; orphans that end meanwhile are reaped in passing."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _wait_and_watch(child: int, witness: Witness) -> int:
    """As `_wait`, while the witness is served."""
    ended, wake = os.pipe()
    os.set_blocking(ended, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        code = _reap(child)
        if code is not None:
            return code
        poll = select.poll()
        for handle in (ended, *witness.handles):
            poll.register(handle, select.POLLIN)
        known = witness.handles
        while known == witness.handles:
            ready = poll.poll()
            for handle, event in ready:
                if handle != ended:
                    witness.serve(handle, over=not event & select.POLLIN)
            if any(handle == ended for handle, _ in ready):
                with contextlib.suppress(BlockingIOError):
                    os.read(ended, 4096)
                break


def _reap(child: int) -> int | None:
    """Takes leave of all that has ended; returns the child's exit code when it has."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            return os.waitstatus_to_exitcode(status)
        if pid == 0:
            return None


def _become_child(work: Callable[[], None], keeper: int) -> NoReturn:
    status = 1
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(status)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        work()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _give_up(child: int) -> NoReturn:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    sweep(child)
    os._exit(1)


def _children() -> list[int]:
    try:
        return [int(word) for word in Path("/proc/thread-self/children").read_text(encoding="ascii").split()]
    except (OSError, ValueError):
        return []


def _tell(handle: int, text: str) -> None:
    with contextlib.suppress(OSError):  # the supervisor has given up on that child
        os.write(handle, text.encode())


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
