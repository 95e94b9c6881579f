"""A runtime's process: started, asked, ended. Its words on the standard streams go to ours and are kept for sentences.

A command arrives; answers leave as headers and tensors. What it prints cannot disturb the conversation, which goes
through two pipes of its own. It ends when this object is closed, or when the process that made it ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from batch_export.runtime.served.serve import ProtocolError, Tensor, read_frame, write_frame
from batch_export.runtime.worker.failures import WorkerEndedError, WorkerRefusedError

_KEPT_BYTES = 8000
_END_LIMIT_S = 5.0
_GRACE_S = 2.0
"""How long a process may take to end by itself once nothing more is asked: one with a browser has that to end."""
_FORWARDED_BYTES = 1 << 20


class WorkerProcess:
    """A running worker.

    Args:
        called: what sentences call the runtime.
        command: the program and its arguments for given numbers of the pipes that it reads and writes.
        environment: its environment variables.
        echo: whether what it prints goes to our standard error.
    """

    def __init__(
        self,
        called: str,
        command: Callable[[int, int], Sequence[str]],
        environment: Mapping[str, str],
        *,
        echo: bool = True,
    ) -> None:
        self._echo = echo
        self._called = called
        self._kept = bytearray()
        its_read, self._write = os.pipe()
        self._read, its_write = os.pipe()
        output_read, output_write = os.pipe()
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                list(command(its_read, its_write)),
                pass_fds=[its_read, its_write],
                stdin=subprocess.DEVNULL,
                stdout=output_write,
                stderr=output_write,
                env=dict(environment),
            )
        except OSError as error:
            os.close(self._read)
            os.close(self._write)
            os.close(output_read)
            raise WorkerEndedError(f"{called} cannot be started: {error}") from error
        finally:
            for handle in (its_read, its_write, output_write):
                os.close(handle)
        self._listener = threading.Thread(target=self._listen, args=(output_read,), daemon=True)
        self._listener.start()
        self._open = True

    def ask(
        self, header: Mapping[str, Any], tensors: Sequence[Tensor] = (), *, limit_s: float | None = None
    ) -> tuple[dict[str, Any], list[Tensor]]:
        """Sends a request and waits for its answer, for `limit_s` seconds at most if that is given.

        Raises:
            WorkerRefusedError: the runtime raised an exception.
            WorkerEndedError: its process ended, or took longer.
        """
        try:
            write_frame(self._write, dict(header), list(tensors))
            if limit_s is not None and not select.select([self._read], [], [], limit_s)[0]:
                raise self._too_slow(str(header["do"]), limit_s)
            answer, values = read_frame(self._read)
        except (EOFError, BrokenPipeError) as error:
            raise self._ended(str(header["do"])) from error
        except (ProtocolError, ValueError, KeyError, TypeError) as error:
            self.close()
            raise WorkerEndedError(f"{self._called} sent something that is not an answer: {error}") from error
        if "error" in answer:
            said = answer["error"]
            raise WorkerRefusedError(str(said["message"]) or str(said["class"]), said["class"], said["details"])
        return answer, values

    def close(self) -> None:
        """Ends the process."""
        if not self._open:
            return
        self._open = False
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(_END_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _too_slow(self, what: str, limit_s: float) -> WorkerEndedError:
        self._process.kill()
        self.close()
        return WorkerEndedError(f"{self._called} did not answer in {limit_s:g} s ({_DOING[what]}){self._last_words()}")

    def _ended(self, what: str) -> WorkerEndedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_LIMIT_S)
        self._process.kill()
        code = self._process.wait()
        self.close()
        how = f"by {_signal_name(-code)}" if code < 0 else f"with exit code {code}"
        return WorkerEndedError(f"the process of {self._called} ended {how} {_DOING[what]}{self._last_words()}")

    def _last_words(self) -> str:
        lines = [line.strip() for line in bytes(self._kept).decode("utf-8", "replace").splitlines()]
        said = next((line for line in reversed(lines) if line), "")
        return f"; its last words: {said[:300]}" if said else ""

    def _listen(self, handle: int) -> None:
        forwarded = 0
        while True:
            data = os.read(handle, 1 << 16)
            if not data:
                break
            self._kept = (self._kept + data)[-_KEPT_BYTES:]
            if self._echo and forwarded < _FORWARDED_BYTES:
                forwarded += len(data)
                with contextlib.suppress(OSError):
                    os.write(2, data)
        os.close(handle)


_DOING = {
    "load": "while it was imported",
    "connect": "while it was set up",
    "open": "while it opened the file",
    "feed": "while it took the inputs",
    "run": "while it ran the file",
    "time": "while it was timed",
}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
