"""What tables and sentences show of a record, without the rest: a tenth of a percent of it stays in memory.

Records arrive, records leave that lack their runs, actions, files and details; whatever needs those reads the whole
record. Nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from sys import intern
from typing import Any, TypeVar

from batch_export.record import AXES, Cell, Failure, Record
from batch_export.runner.stored_records import StoredRecords

_SHOWN_EXTRA = ("reason", "link", "guards", "untried_axes")
_Failing = TypeVar("_Failing", Failure, None, Failure | None)
_NOTHING: dict[str, int] = {}
_UNSEEN: dict[str, str] = {}


def row_of(record: Record) -> Record:
    """Returns the record without what no table shows."""
    cell = record.cell
    return replace(
        record,
        cell=_interned(cell),
        onnx=None,
        actions=(),
        failure=_short(record.failure),
        findings=tuple(
            _short(finding) for finding in record.findings[:1]
        ),  # what names a failure, if nothing else does
        runs=(),
        placement=_NOTHING,
        log=intern(record.log),
        extra=_extra(record, _SHOWN_EXTRA),
        attempts=(),
        seen=_UNSEEN,
    )


def without_runs(record: Record) -> Record:
    """Returns the record without its runs, by far the longest part, and without what they are told by."""
    return replace(record, runs=(), placement=_NOTHING, extra=_extra(record, _SHOWN_EXTRA))


def rows_of(records: Sequence[Record]) -> Sequence[Record]:
    """Returns the rows of records that lie on the disk, if they were made; other records are in memory as they are."""
    return records.rows if isinstance(records, StoredRecords) and records.rows else records


def _extra(record: Record, names: Sequence[str]) -> dict[str, Any]:
    return {name: record.extra[name] for name in names if name in record.extra} or _NOTHING


def _short(failure: _Failing) -> _Failing:
    return failure if failure is None else replace(failure, details="")


def _interned(cell: Cell) -> Cell:
    values: dict[str, Any] = {}
    for axis in AXES:
        value = getattr(cell, axis)
        values[axis] = intern(value) if isinstance(value, str) else value
    return Cell(**values)
