"""Starting children: through the forkserver where the platform has a safe fork, as fresh processes elsewhere.

Orders arrive, `Child` handles leave. The parent's side only: it imports no model, no torch, and reads no events.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batch_export.errors import RunError
from batch_export.runner import lifeline
from batch_export.runner.greeting import READY, TIED
from batch_export.runner.order import Order, encode_order
from batch_export.runner.predecessors import mark
from batch_export.sources.pythons_variables import HASHING, value
from batch_export.sources.search_path import path_of_children
from batch_export.sources.toolchain import Toolchain
from batch_export.store.files import storing

_START_LIMIT_S = 300.0
_STOP_POLL_S = 0.05
_END_LIMIT_S = 10.0
_LOG_TAIL_BYTES = 4000


@dataclass(slots=True)
class Child:
    """A running child.

    Attributes:
        pid: its process, which leads a process group of its own.
        keeper: the process that ends whatever the child has started, see `keeper.py`; the child's own where none is.
        events: read end of the pipe that its events come through; not blocking.
        fate: read end of the pipe that shows its end; it becomes readable then.
    """

    pid: int
    keeper: int
    events: int
    fate: int
    _process: subprocess.Popen[bytes] | None = None
    _closed: bool = field(default=False)

    def exit_code(self) -> int | None:
        """Waits for the child's end and returns its exit code, negative for a signal; None if nobody could tell."""
        if self._process is not None:
            return self._process.wait()
        text = b""
        while chunk := os.read(self.fate, 100):
            text += chunk
            if text.endswith(b"\n"):
                break
        word, _, number = text.decode().strip().partition(" ")
        return int(number) if word == "exit" else None

    def kill(self) -> None:
        """Ends the child and whatever it started in its process group."""
        self.kill_group()
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it may not lead its group yet
            os.kill(self.pid, signal.SIGKILL)

    def kill_group(self) -> None:
        """Ends what a child that is gone has left behind."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Closes the pipes."""
        if not self._closed:
            self._closed = True
            os.close(self.events)
            os.close(self.fate)


@dataclass(frozen=True, slots=True)
class Staying:
    """A forkserver that stays for the next command, see `staying/`.

    Attributes:
        idle_s: how long, after the last command.
        toolchain: the run's.
        warn: told why the run does without it.
    """

    idle_s: float
    toolchain: Toolchain
    warn: Callable[[str], None]


class Launcher:
    """Starts children; the forkserver itself is started by the first one.

    Args:
        logs: folder for the forkserver's log.
        preload: what the forkserver imports, see `preload.entries_for`.
        roots: folders that are importable in the children.
        stop: when it is set nobody waits for the forkserver to start any longer.
        staying: see there.
        python: the interpreter of the children; None: this process' own.

    Attributes:
        log: of the forkserver.
        staying: the server that may serve this and later commands; None: the forkserver ends with this process.
    """

    def __init__(
        self,
        logs: Path,
        preload: Sequence[str],
        roots: Sequence[str],
        stop: threading.Event | None = None,
        staying: Staying | None = None,
        python: Path | None = None,
    ) -> None:
        name = f"forkserver-{python.parent.parent.name}.log" if python is not None else "forkserver.log"
        self.log = logs / name
        self._python = str(python or sys.executable)
        self._preload = tuple(preload)
        self._environment = environment_of_children(roots)
        self.staying = staying
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._line: socket.socket | None = None
        self._stop = stop or threading.Event()
        self._stopped = False
        self._failed: RunError | None = None

    def launch(self, order: Order) -> Child:
        """Starts a child that carries out the order.

        Raises:
            RunError: the forkserver did not start, or is gone.
            StoreError: the order could not be written.
        """
        path = Path(order.scratch) / "order.msgpack"
        with storing(path):
            path.write_bytes(encode_order(order))
        if sys.platform == "win32":
            raise RunError("sweeps need a POSIX system (children are killed by process group). Next step: use WSL")
        return self._fork(path) if can_fork() else self._spawn(path)

    def start(self) -> None:
        """Starts the forkserver before the first child needs it.

        Raises:
            RunError: it did not start.
        """
        with self._lock:
            if self._control is None:
                self._start()

    def prepare(self) -> None:
        """Has the forkserver start meanwhile, since children will be needed; what goes wrong the first child says."""
        if can_fork():
            threading.Thread(target=self._start_quietly, name="forkserver", daemon=True).start()

    def close(self) -> None:
        """Ends the forkserver, and with it every child; nothing of them is left when it returns."""
        self._stopped = True  # before the lock, which whoever waits for the forkserver to start holds
        with self._lock:
            if self._control is not None:
                self._control.close()
            self._end_server()

    def _start_quietly(self) -> None:
        with contextlib.suppress(RunError, OSError):
            self.start()

    def _fork(self, order: Path) -> Child:
        with self._lock:
            control = self._control or self._start()
            events_read, events_write = os.pipe()
            fate_read, fate_write = os.pipe()
            try:
                socket.send_fds(control, [os.fsencode(order)], [events_write, fate_write])
            except OSError as error:
                raise self._gone() from error
            finally:
                os.close(events_write)
                os.close(fate_write)
            first = b""
            while not first.endswith(b"\n"):  # nobody else has the lock for as long as a fork takes
                byte = os.read(fate_read, 1)
                if not byte:
                    raise self._gone()
                first += byte
        os.set_blocking(events_read, False)
        _, pid, keeper = first.split()
        return Child(int(pid), int(keeper), events_read, fate_read)

    def _start(self) -> socket.socket:
        self._refuse_if_stopped()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line, its_end = socket.socketpair()
        handles = [theirs.fileno(), its_end.fileno()]
        with self.log.open("ab") as log, theirs, its_end:
            mark(log.fileno(), self.log)
            if not self._joins([*handles, log.fileno()]):
                self._server = subprocess.Popen(
                    [self._python, "-m", "batch_export.runner.forkserver", *map(str, handles), *self._preload],
                    pass_fds=handles,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    start_new_session=True,  # Ctrl-C is the parent's to handle
                )
                lifeline.tie(self._server.pid, its_end)
            with contextlib.suppress(OSError):  # it is gone already, which the wait for its answer finds out
                ours.sendall(TIED)
        ours.settimeout(_STOP_POLL_S)
        ready, deadline = None, time.monotonic() + _START_LIMIT_S
        while ready is None and time.monotonic() < deadline:
            try:
                self._refuse_if_stopped()
                ready = ours.recv(len(READY))
            except TimeoutError:
                continue
            except ConnectionResetError:
                ready = b""  # it was killed before it had read what we sent
            except RunError:
                self._end_server()
                ours.close()
                raise
        if ready != READY:
            self._end_server()
            ours.close()
            self._failed = self._gone()  # for every thread that waits for it, so that none reports the stop instead
            raise self._failed
        ours.settimeout(None)
        self._control = ours
        return ours

    def _joins(self, handles: Sequence[int]) -> bool:
        """Whether the server that stays does for this process what a forkserver of its own would."""
        if self.staying is None:
            return False
        from batch_export.runner.staying.client import begin_session, question_of  # lazy: where it was asked for

        idle_s, toolchain, warn = self.staying.idle_s, self.staying.toolchain, self.staying.warn
        try:
            question = question_of(self._environment, self._preload, toolchain, idle_s, session=True)
            begin_session(question, self._preload, handles, self._refuse_if_stopped)
        except (RunError, OSError) as error:
            self._refuse_if_stopped()
            warn(f"runner.keep_alive is of no use to this run: {error}")
            return False
        return True

    def _end_server(self) -> None:
        if self._line is not None:
            lifeline.cut(self._line, _END_LIMIT_S)
            self._line = None
        if self._server is not None:
            self._server.kill()
            self._server.wait()

    def _refuse_if_stopped(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._stopped or self._stop.is_set():
            raise RunError("the run has been stopped")

    def _gone(self) -> RunError:
        tail = log_tail(self.log)
        return RunError(
            f"the process that children are forked from could not start or has ended; its log is {self.log}. "
            f"Next step: read the last lines there\n{tail}"
        )

    def _spawn(self, order: Path) -> Child:
        events_read, events_write = os.pipe()
        fate_read, fate_write = os.pipe()
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [self._python, "-m", "batch_export.runner.worker", str(order), str(events_write)],
                pass_fds=[events_write, fate_write],  # the system closes the child's copy of `fate` when it ends
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )
        os.close(events_write)
        os.close(fate_write)
        os.set_blocking(events_read, False)
        return Child(process.pid, process.pid, events_read, fate_read, process)


def can_fork() -> bool:
    """Whether forking a process that has imported torch is safe here (on macOS system libraries forbid it)."""
    return sys.platform == "linux"


def log_tail(path: Path) -> str:
    """Returns the end of a log, at most 4000 bytes of it; empty when there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _LOG_TAIL_BYTES))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""


def environment_of_children(roots: Sequence[str]) -> dict[str, str]:
    """Returns the environment variables that children start with.

    Args:
        roots: folders that are importable in them.
    """
    path = path_of_children(roots)
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    hashing = {HASHING: value(HASHING, os.environ)}
    quiet = {"PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **one_thread, **hashing, **quiet, "PYTHONPATH": path}
