"""Processes of runs that tests start: told from all others by a variable in their environment."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parent
PATIENCE_S = 300.0
"""How long a test waits for what happens by itself; only a defect makes it wait for so long."""
_MARK = "BATCH_EXPORT_TEST_RUN"


class RunProcess:
    """Python code that runs in a process of its own, and all processes that come of it.

    Args:
        code: may import what the tests may.
        arguments: are its `sys.argv[1:]`.
        path: a further folder from which it can import.
    """

    def __init__(self, code: str, *arguments: object, path: Path | None = None) -> None:
        self._mark = uuid.uuid4().hex
        folders = [*([path] if path else []), TESTS, TESTS.parent]
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), _MARK: self._mark},
        )

    def others(self) -> list[int]:
        """Returns the living processes that came of it, without itself."""
        wanted = f"{_MARK}={self._mark}".encode()
        found = []
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and int(process.name) != self.process.pid:
                try:
                    if wanted in (process / "environ").read_bytes().split(b"\0"):  # none is left of a zombie
                        found.append(int(process.name))
                except OSError:
                    continue
        return found

    def kill(self) -> None:
        """Kills the process itself, as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait()

    def require_nothing_left(self) -> None:
        """Asserts that all that came of it ends."""
        wait_until(lambda: not self.others())

    def __enter__(self) -> RunProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


def parent_of(pid: int) -> int:
    """Returns the parent of a living process."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def wait_until(is_so: Callable[[], object]) -> None:
    """Returns when something has come about, and fails if it does not."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)
