"""`records.jsonl` while a run goes on: a line per record as it is made, so that a run that is killed keeps all it had.

Records arrive, lines leave; at the start, what an earlier process of the same run had written comes back. What was
planned is in `run.json`, written before (`report/run_folder.py`). Lines are forced to the disk once a second, so that a
power failure costs at most that; a line that it tore is cut off, and its cell is done again.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from batch_export.errors import RunError
from batch_export.record import Record
from batch_export.runner.stored_records import Place, StoredRecords
from batch_export.store.locks import take, take_within

RECORDS_NAME = "records.jsonl"
LOGS_NAME = "logs"
_SYNC_EVERY_S = 1.0
_GRACE_S = 3.0
"""A killed run's descriptor lives on for a moment in what it was just starting, between its fork and its exec."""
_decoder = msgspec.json.Decoder(Record)


class RecordsFile:
    """The growing `records.jsonl` of a run; one process has it at a time.

    Args:
        folder: the run's folder; it is made, with its folder for logs, when it does not exist.

    Attributes:
        found: records that were in it already, still there; of two for one cell the later is the cell's.

    Raises:
        RunError: the folder cannot be written, or another process is writing it.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._path = folder / RECORDS_NAME
        self._synced_at = time.monotonic()
        try:
            (folder / LOGS_NAME).mkdir(parents=True, exist_ok=True)
            self._stream = self._path.open("ab+", buffering=0)
        except OSError as error:
            raise RunError(
                f"the run's folder {folder} cannot be written: {error.strerror}. "
                "Next step: choose a folder that you may write to, with output.path=..."
            ) from error
        if not take_within(self._stream.fileno(), _GRACE_S):
            self._stream.close()
            raise RunError(f"another process is working on the run in {folder}. Next step: wait for it to end")
        self.found = self.at(self._read())

    def write(self, record: Record) -> Place:
        """Appends a record's line, and returns where it is.

        Raises:
            RunError: the disk is full.
        """
        line = msgspec.json.encode(record) + b"\n"
        size = len(line) - 1
        with self._lock:
            try:
                end = self._stream.seek(0, os.SEEK_END)
                try:
                    while line:
                        line = line[self._stream.write(line) :]
                except OSError:
                    self._stream.truncate(end)  # half a line would swallow the next one
                    raise
                if time.monotonic() - self._synced_at > _SYNC_EVERY_S:
                    os.fsync(self._stream.fileno())
                    self._synced_at = time.monotonic()
            except OSError as error:
                raise RunError(
                    f"{self._path} could not be written: {error.strerror}. "
                    "Next step: free space there, then `batch-export resume` goes on with the run"
                ) from error
        return end, size

    def at(self, places: Sequence[Place]) -> StoredRecords:
        """Returns the records at these places, without reading them yet."""
        return StoredRecords(self._path, places)

    def _read(self) -> list[Place]:
        """Finds the lines that are whole, and cuts off the rest."""
        found: list[Place] = []
        end = 0
        with self._path.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    self._stream.truncate(end)
                    break
                with contextlib.suppress(msgspec.MsgspecError, RecursionError, UnicodeError):
                    _decoder.decode(line)  # blocks that never reached the disk do not decode; the cell is done again
                    found.append((end, len(line) - 1))
                end += len(line)
        return found

    def __enter__(self) -> RecordsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # the lines are written; what the disk makes of them is out of reach
            os.fsync(self._stream.fileno())
        self._stream.close()


def is_taken(folder: Path) -> bool:
    """Whether a process is working on the run in this folder."""
    try:
        handle = os.open(folder / RECORDS_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not take(handle)
    finally:
        os.close(handle)
