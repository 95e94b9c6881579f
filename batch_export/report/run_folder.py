"""The files of one run's folder, which other tools may rely on (docs/results.md), and the pointer to the newest run.

Plain data goes in and out as JSON; a file appears whole or not at all. Nothing is judged here.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from batch_export.errors import RunError, UsageError
from batch_export.exact_json import MARKS, exact, from_exact
from batch_export.files import whole_file
from batch_export.plan.matrix import PlannedCell
from batch_export.record import SCHEMA_VERSION, Cell, Record
from batch_export.report.rows import row_of
from batch_export.report.summary import Counts
from batch_export.runner.stored_records import Place, StoredRecords
from batch_export.sources.name_texts import OF_BYTES, text_of
from batch_export.spec import RunSpec

RUN_FILE = "run.json"
RECORDS_FILE = "records.jsonl"
SUMMARY_FILE = "summary.json"
TRIED = "tried"
"""Folder beside the runs: configs of models that were described on the command line."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned cell as it is stored: its point of the matrix, and why it was not to run."""

    cell: Cell
    skip: str = ""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """run.json: what was asked for, written before the first cell starts."""

    spec: RunSpec
    planned: tuple[Planned, ...]
    command: str = ""
    schema_version: int = SCHEMA_VERSION

    def cells(self) -> tuple[PlannedCell, ...]:
        """The planned cells with the specs that they point at."""
        matrix = self.spec.matrix
        models = {model.name: model for model in matrix.models}
        providers = {provider.name: provider for provider in matrix.providers}
        exporters = {exporter.name: exporter for exporter in matrix.exporters}
        return tuple(
            PlannedCell(p.cell, models[p.cell.model], providers[p.cell.provider], exporters[p.cell.exporter], p.skip)
            for p in self.planned
        )


class _Versioned(msgspec.Struct):
    """As much of run.json as every version of it has."""

    schema_version: int = SCHEMA_VERSION


def write_run(folder: Path, spec: RunSpec, cells: Sequence[PlannedCell], command: str) -> None:
    """Writes run.json."""
    planned = tuple(Planned(item.cell, item.skip) for item in cells)
    write_whole(folder / RUN_FILE, msgspec.json.encode(exact(StoredRun(spec, planned, command))))


def read_run(folder: Path) -> StoredRun:
    """Reads run.json.

    Raises:
        UsageError: the folder holds no run, or a run of another schema version.
    """
    path = folder / RUN_FILE
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{folder} is not the folder of a run: it has no readable {RUN_FILE}. "
            "Next step: name a folder such as outputs/latest"
        ) from error
    try:
        version = msgspec.json.decode(text, type=_Versioned).schema_version
        if version > SCHEMA_VERSION:
            raise UsageError(
                f"The run {folder} has schema version {version}, this program reads up to {SCHEMA_VERSION}. "
                "Next step: update batch_export"
            )
        if any(mark in text for mark in MARKS):
            return msgspec.convert(from_exact(msgspec.json.decode(text)), type=StoredRun)
        return msgspec.json.decode(text, type=StoredRun)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{path} cannot be read by this version of batch_export: {error}. Next step: name another run, or run the "
            "sweep again; the records beside it are untouched"
        ) from error


def write_records(folder: Path, records: Iterable[Record]) -> StoredRecords:
    """Writes records.jsonl anew, one line per record, and returns them with their rows; they stay in that file."""
    places: list[Place] = []
    rows: list[Record] = []
    start = 0
    with _whole(folder / RECORDS_FILE) as stream:
        for record in records:
            line = msgspec.json.encode(record)
            stream.write(line + b"\n")
            places.append((start, len(line)))
            rows.append(row_of(record))
            start += len(line) + 1
    return StoredRecords(folder / RECORDS_FILE, places, tuple(rows))


def read_records(folder: Path) -> tuple[Record, ...]:
    """Reads records.jsonl; a last line that an interruption cut off is left out.

    Raises:
        UsageError: a line is not a record.
    """
    return tuple(each_record(folder))


def each_record(folder: Path) -> Iterator[Record]:
    """Reads records.jsonl one line at a time, as `read_records`.

    Raises:
        UsageError: a line is not a record, or the file cannot be read.
    """
    path = folder / RECORDS_FILE
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(Record)
    try:
        opened = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}). Next step: name another run") from error
    with opened as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                record = decoder.decode(line)
            except msgspec.DecodeError as error:
                if not line.endswith(b"\n"):
                    return
                raise UsageError(
                    f"{path} line {number} is not a record: {error}. Next step: take that line out, which leaves its "
                    "cell without a record"
                ) from error
            yield record


def bisect_file(folder: Path, cell: Cell) -> Path:
    """Where the verb `bisect` leaves what it found out about a cell."""
    return folder / "bisect" / f"{cell.name.replace('/', '_')}.json"


def write_bisected(folder: Path, cell: Cell, data: bytes) -> None:
    """Writes it; a run's folder that cannot be written to costs the report one entry, the answer was printed."""
    path = bisect_file(folder, cell)
    with contextlib.suppress(OSError, RunError):
        path.parent.mkdir(exist_ok=True)
        write_whole(path, data)


def read_counts(folder: Path) -> Counts:
    """Reads them from summary.json; a run that never came to its summary was interrupted."""
    try:
        return msgspec.json.decode((folder / SUMMARY_FILE).read_bytes(), type=Counts)
    except (OSError, msgspec.DecodeError):
        return Counts(interrupted=True)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Reads summary.json as plain data; None when there is none that can be read."""
    try:
        found = msgspec.json.decode((folder / SUMMARY_FILE).read_bytes())
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def read_comparison(folder: Path) -> dict[str, Any] | None:
    """Reads the comparison with the baseline that summary.json holds; None when there is none."""
    try:
        found = msgspec.json.decode((folder / SUMMARY_FILE).read_bytes()).get("comparison")
    except (OSError, msgspec.DecodeError, AttributeError):
        return None
    return found if isinstance(found, dict) else None


def point_latest(outputs: Path, run_folder: Path) -> None:
    """Makes `outputs/latest` a relative symlink to the run's folder; without links, `latest.txt` names it."""
    target = os.path.relpath(run_folder.absolute(), outputs.absolute())
    link = outputs / "latest"
    temporary = outputs / f".latest-{os.getpid()}"
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target, target_is_directory=True)
        os.replace(temporary, link)
    except OSError:
        temporary.unlink(missing_ok=True)
        write_whole(outputs / "latest.txt", f"{target}\n".encode())


def hide_from_git(outputs: Path, run_folder: Path) -> None:
    """Writes a `.gitignore` into a folder of outputs that this run has just made: what lies there is not for a commit.

    A folder that holds anything else is somebody's own, and left as it is.
    """
    made = {run_folder.parent.name, "store", TRIED}
    with contextlib.suppress(OSError, RunError):
        if {entry.name for entry in outputs.iterdir()} <= made:
            write_whole(outputs / ".gitignore", b"# Written by batch_export: runs and their store.\n*\n")


def require_text(text: str, named: str) -> None:
    """Checks that a path, or whatever else a run's files are to name, is text.

    Args:
        text: as Python has it, with halves of surrogate pairs in the place of bytes that are no UTF-8.
        named: what it is called in the sentence.

    Raises:
        UsageError: it has such bytes.
    """
    if (shown := text_of(text)) != text:
        raise UsageError(
            f"{named} is {shown.removeprefix(OF_BYTES)}, which is no UTF-8, so that the files of a run cannot name it. "
            "Next step: rename what is called so, or run from elsewhere"
        )


def require_writable(folder: Path, key: str) -> None:
    """Makes the folder, and a file in it that is removed again, before any work begins.

    Raises:
        RunError: it cannot be made or written to; the sentence names the key that chooses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RunError(
            f"The folder {folder} is not writable ({error.strerror or error}). Next step: choose another with {key}=..."
        ) from error


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file that appears whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    with _whole(path) as stream:
        stream.write(data)


def write_asked(path: Path, data: bytes, flag: str) -> None:
    """Writes a file that a verb was asked for.

    Raises:
        UsageError: it cannot be written; the sentence names the flag that chooses it.
    """
    try:
        write_whole(path, data)
    except RunError as error:
        why = getattr(error.__cause__, "strerror", None) or error.__cause__
        raise UsageError(f"{path} could not be written ({why}). Next step: choose another file with {flag}") from error


@contextlib.contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    try:
        with whole_file(path) as stream:
            yield stream
    except OSError as error:
        raise RunError(
            f"{path} could not be written ({error.strerror or error}). "
            "Next step: free space there, or choose another folder with output.path=..."
        ) from error
