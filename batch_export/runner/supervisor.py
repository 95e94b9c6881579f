"""Watching one child: its events as they come, its limits, its end. The parent's side of `worker.py`.

A running child arrives; events go to a callback, and how it ended leaves. A child that exceeds a limit is killed with
its whole process group. Nothing is retried here, and no result is made but the failure of the action that was
running.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from batch_export.action import ActionResult
from batch_export.record import Failure, Stage
from batch_export.runner.launcher import Child, log_tail
from batch_export.runner.memory import PrivateMemory
from batch_export.runner.order import Event, Finished, Started, UnitDone, decode_event
from batch_export.spec import ModelSpec, RunnerSpec

_POLL_S = 0.5
_QUIET_LIMIT_S = 120.0
"""Added to the limit of an action while none is running: a child that is not forked imports everything first."""
_LOG_LIMIT_BYTES = 64 << 20
_MEMORY_GB = 8.0

Reason = Literal["done", "died", "timeout", "memory", "log", "stopped"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one action: seconds of wall time, bytes of private memory."""

    seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class End:
    """How a child ended.

    Attributes:
        reason: `done` when it carried out its order; else what ended it.
        exit_code: of the process, negative for a signal.
        running: the action that it was executing then.
        peak_bytes: the most private memory seen.
        spoiled: whether the rest of its order wants a fresh child, see `UnitDone`.
    """

    reason: Reason
    exit_code: int | None = None
    running: Started | None = None
    peak_bytes: int = 0
    spoiled: bool = False


class Supervision:
    """Supervises one child until it ends.

    Args:
        child: the child; it is dead, and its pipes are closed, when `run` returns.
        limits: of each action.
        log: the unit's log.
        on_event: called with each event, in order.
        stop: set when the run is interrupted.
    """

    def __init__(
        self, child: Child, limits: Limits, log: Path, on_event: Callable[[Event], None], stop: threading.Event
    ) -> None:
        self._child = child
        self._limits = limits
        self._log = log
        self._on_event = on_event
        self._stop = stop
        self._buffer = b""
        self._running: Started | None = None
        self._heard_at = time.monotonic()
        self._done = False
        self._spoiled = False
        self._peak = 0
        self._log_start = _size(log)
        self._memory = PrivateMemory(child.keeper, limits.memory_bytes)

    def run(self) -> End:
        """Watches the child to its end."""
        child, gone = self._child, False
        try:
            reason = self._watch()
            if reason not in ("done", "died"):
                child.kill()
            code = child.exit_code()
            gone = True
            self._drain()
            if self._done:
                reason = "done"
            elif self._stop.is_set():
                # Whoever stops the run ends the forkserver too, and with it the children, maybe before we look.
                reason = "stopped"
            return End(reason, code, self._running, self._peak, self._spoiled)
        finally:
            if gone:
                child.kill_group()
            else:
                child.kill()
            child.close()

    def _watch(self) -> Reason:
        next_look = time.monotonic() + _POLL_S
        while True:
            now = time.monotonic()
            wait = max(0.0, min(next_look, self._deadline()) - now)
            ready, _, _ = select.select([self._child.events, self._child.fate], [], [], wait)
            if self._child.events in ready and not self._drain():
                # The child closed its end: it is about to be gone, or something closed the descriptor under it.
                return "done" if self._done else self._await_fate()
            if self._child.fate in ready:
                return "died"
            if self._stop.is_set():
                return "stopped"
            now = time.monotonic()
            if now >= self._deadline():
                return "timeout"
            if now >= next_look:
                next_look = now + _POLL_S
                if _size(self._log) - self._log_start > _LOG_LIMIT_BYTES:
                    return "log"
                used = self._memory.look()
                self._peak = max(self._peak, used)
                if used > self._limits.memory_bytes:
                    return "memory"

    def _deadline(self) -> float:
        if self._running is not None:
            return self._heard_at + self._limits.seconds
        # Between two actions a child may wait for another one to finish the same action, at most for its limit.
        return self._heard_at + self._limits.seconds + _QUIET_LIMIT_S

    def _await_fate(self) -> Reason:
        ready, _, _ = select.select([self._child.fate], [], [], self._limits.seconds)
        return "died" if ready else "timeout"

    def _drain(self) -> bool:
        """Reads what is there; returns whether more may come."""
        while True:
            try:
                data = os.read(self._child.events, 1 << 20)
            except BlockingIOError:
                return True
            if not data:
                return False
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._take(decode_event(line))

    def _take(self, event: Event) -> None:
        self._heard_at = time.monotonic()
        if isinstance(event, Started):
            self._running = event
        elif isinstance(event, Finished):
            self._running = None
        elif isinstance(event, UnitDone):
            self._done = True
            self._spoiled = event.spoiled
            self._running = None
        self._on_event(event)


def limits_for(model: ModelSpec, run: RunnerSpec) -> Limits:
    """Returns the limits of a model's actions: its own, or else the run's."""
    memory_gb = model.memory_gb or run.memory_gb or default_memory_gb()
    return Limits(model.timeout_s or run.timeout_s, int(memory_gb * 2**30))


def default_memory_gb() -> float:
    """Returns 8, or three quarters of this machine's memory if that is less."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return _MEMORY_GB
    return min(_MEMORY_GB, 0.75 * total / 2**30)


def blame(end: End, limits: Limits, log: Path) -> Failure:
    """Returns the failure of the action that was running when a child ended before its time."""
    what = end.running.description if end.running else "the child, between two actions,"
    peak = f" ({end.peak_bytes / 2**30:.2f} GiB of private memory when last seen)" if end.peak_bytes else ""
    step = f"Next step: read {log.name}"
    stage: Stage = "crash"
    if end.reason == "timeout" or _fell_while_it_told(end, log):
        seconds = limits.seconds + (0 if end.running else _QUIET_LIMIT_S)
        stage, name = "timeout", "Timeout"
        text = f"{what} took more than {seconds:g} s and was ended. {step} for the stack, or raise runner.timeout_s"
        text += " (timeout_s in the model's config)"
    elif end.reason == "memory":
        stage, name = "memory", "MemoryLimit"
        limit = limits.memory_bytes / 2**30
        text = f"{what} used more than {limit:g} GiB of private memory and was ended. "
        text += "Next step: raise runner.memory_gb (memory_gb in the model's config)"
    elif end.reason == "log":
        name = "OutputLimit"
        text = (
            f"{what} printed more than {_LOG_LIMIT_BYTES >> 20} MiB and was ended. Next step: make the model print less"
        )
    elif end.exit_code is not None and end.exit_code < 0:
        name = _signal_name(-end.exit_code)
        text = f"{what} ended by {name}{peak}. {step}"
        if name == "SIGKILL":
            text += ", and the kernel's log: memory may have run out"
    else:
        code = "unknown" if end.exit_code is None else str(end.exit_code)
        name = "ProcessExit"
        text = f"{what} ended its process with exit code {code}. {step}"
    memory = f"private memory at its highest: {end.peak_bytes / 2**20:.0f} MiB\n" if end.peak_bytes else ""
    return Failure(stage, name, text, details=memory + log_tail(log))


def _fell_while_it_told(end: End, log: Path) -> bool:
    """Whether a child ended by a signal while it wrote its stack, seconds before its time was up.

    Python writes the stack of threads that go on meanwhile, and may read frames that are gone.
    """
    if end.reason != "died" or end.exit_code not in (-signal.SIGSEGV, -signal.SIGBUS):
        return False
    _, found, behind = log_tail(log).rpartition("Timeout (")
    lines = behind.splitlines()[1:]
    return bool(found) and all(
        one.lstrip().startswith(("Thread ", "File ", "Current thread ")) or not one for one in lines[:-1]
    )


def blamed_result(end: End, limits: Limits, log: Path) -> ActionResult | None:
    """Returns the result of the action that was running, or None when none was."""
    if end.running is None:
        return None
    seconds = limits.seconds if end.reason == "timeout" else 0.0
    return ActionResult(end.running.mnemonic, end.running.key, failure=blame(end, limits, log), seconds=seconds)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
