"""The keeper: the process between the forkserver and one child, which sees to it that nothing of the child is left.

A function to run in the child arrives; the child's end goes to the `fate` pipe, after every process that it started is
gone, those included that made themselves a session of their own. On Linux orphans of the child come to the keeper
(PR_SET_CHILD_SUBREAPER), elsewhere the child's process group has to do. Single-threaded; it runs no model.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_LIMIT_S = 10.0


def keep(work: Callable[[], None], fate: int, *, inherited: tuple[int, ...] = ()) -> NoReturn:
    """Runs `work` in a child of this process, reports the child's start and end, and never returns.

    Args:
        work: what the child does.
        fate: takes `pid CHILD KEEPER`, then `exit CODE` (negative for a signal).
        inherited: descriptors that are the child's alone.
    """
    status = 1
    try:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # the forkserver's end is ours
        mine = os.getpid()
        child = os.fork()
        if child == 0:
            _become_child(work, mine)
        signal.signal(signal.SIGTERM, lambda *_: _give_up(child))
        if os.getppid() == 1:
            _give_up(child)  # the forkserver went before it could be noticed
        for handle in inherited:
            os.close(handle)
        _tell(fate, f"pid {child} {mine}\n")
        code = _wait(child)
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


def _become_child(work: Callable[[], None], keeper: int) -> NoReturn:
    status = 1
    try:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(1)
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
