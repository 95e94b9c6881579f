"""The command's side of the server that stays: asks for a session, starts a server when there is none that may serve,
looks at it, and ends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from batch_export.errors import RunError
from batch_export.runner.staying.circumstances import circumstances
from batch_export.runner.staying.messages import UP, Answer, Question, receive_answer, send
from batch_export.runner.staying.place import LOG_NAME, Place, is_used, opened
from batch_export.sources.toolchain import Toolchain

_START_LIMIT_S = 300.0
_END_LIMIT_S = 10.0
_POLL_S = 0.05
_WORDS_BYTES = 4096
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Status:
    """The server that stays.

    Attributes:
        pid: its process.
        answer: what it said; None while it is preloading.
    """

    pid: int
    answer: Answer | None


def question_of(
    environment: Mapping[str, str], preload: Sequence[str], toolchain: Toolchain, idle_s: float, *, session: bool
) -> Question:
    """Returns what this process asks a server."""
    return Question(circumstances(environment, preload, toolchain), dict(environment), idle_s, session)


def begin_session(
    question: Question, preload: Sequence[str], handles: Sequence[int], go_on: Callable[[], None]
) -> None:
    """Has the server that stays begin a session for this process; starts the server when there is none for it.

    Args:
        question: what is asked for.
        preload: what a new server imports.
        handles: the session's ends of the control socket and the lifeline, and its log.
        go_on: raises when nobody waits any longer.

    Raises:
        RunError: there is no session, and why; or what `go_on` raises.
    """
    with opened() as place:
        answer = _ask(place, question, handles)
        if answer is None or answer.differs:
            _start(place, question, preload, go_on)
            answer = _ask(place, question, handles)
        if answer is None:
            raise RunError(f"the server that stays is gone; its log is {place.log}")
        if answer.differs:
            raise RunError(f"something changed while the server that stays was started: {in_short(answer.differs)}")


def status(question: Question) -> Status | None:
    """Returns what the user's server says; None when none is running.

    Raises:
        RunError: its folder cannot be used.
    """
    if not is_used():
        return None
    with opened() as place:
        pid = place.holder()
        return None if pid is None else Status(pid, _ask(place, question, ()))


def stop() -> int | None:
    """Ends the user's server, and returns its process; None when none was running. Sessions go on.

    Raises:
        RunError: its folder cannot be used, or it does not end.
    """
    if not is_used():
        return None
    with opened() as place:
        pid = place.holder()
        if pid is None:
            return None
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + _END_LIMIT_S
            while place.holder() == pid:
                if time.monotonic() > deadline:
                    break
                time.sleep(_POLL_S / 5)
            else:
                return pid
        raise RunError(f"process {pid}, the server that stays, does not end. Next step: end it, or restart the machine")


def in_short(names: Sequence[str]) -> str:
    """The first few names."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _ask(place: Place, question: Question, handles: Sequence[int]) -> Answer | None:
    """Returns the answer; None when there is nobody to give one that this version understands."""
    connection = place.connect()
    if connection is None:
        return None
    with connection:
        try:
            send(connection, question, list(handles))
            return receive_answer(connection)
        except (OSError, RunError):
            return None


def _start(place: Place, question: Question, preload: Sequence[str], go_on: Callable[[], None]) -> None:
    began_ns = time.time_ns()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    log = os.open(LOG_NAME, flags, 0o600, dir_fd=place.handle)
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "batch_export.runner.staying.server",
                    str(theirs.fileno()),
                    str(began_ns),
                    *preload,
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=question.environment,
                start_new_session=True,
            )
    finally:
        os.close(log)
    with ours:
        with contextlib.suppress(OSError):  # it is gone already, which the wait for it finds out
            send(ours, msgspec.structs.replace(question, session=False))
        process.wait()  # it goes into the background at once
        ours.settimeout(_POLL_S)
        said, deadline = b"", time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            go_on()
            try:
                said = ours.recv(_WORDS_BYTES)
                break
            except TimeoutError:
                continue
            except OSError:
                break
    if said != UP:
        why = said.decode("utf-8", "replace") or f"its log is {place.log}"
        raise RunError(f"the server that stays could not be started: {why}")
