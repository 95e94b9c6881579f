"""Since when a cell fails: after how many good runs, and what changed between the last good one and the first bad one.

Records of a run and the history of their cells arrive, a `Since` for each failing cell leaves. A history that is
missing or cannot be read leaves none; nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from batch_export.errors import BatchExportError
from batch_export.nouns import counted
from batch_export.record import Cell, Record
from batch_export.report.history import HISTORY_FILE, Entry, open_history
from batch_export.report.rows import rows_of
from batch_export.report.wording import UNEXPECTED
from batch_export.runner.surroundings import Surroundings, circumstances, versions_of

_MOST_RUNS = 200
_MOST_CELLS = 2000
_WAIT_S = 1.0
_MOST_VERSIONS = 4


@dataclass(frozen=True, slots=True)
class Since:
    """Since when a cell fails as it does.

    Attributes:
        run: the first run that failed so; empty when it is the present one.
        bad: runs that failed so without a break, the present one included.
        good: good runs without a break right before that.
        before: how the cell ended right before, where that was not good: `fail load LoadError`.
        commits: `12ab..34cd`, from the last good run to the first bad one; one commit when it is the same.
        versions: what changed in between: `torch 2.12 -> 2.13`.
        earliest: whether no earlier run has the cell.
    """

    run: str
    bad: int
    good: int
    before: str = ""
    commits: str = ""
    versions: tuple[str, ...] = ()
    earliest: bool = False

    def sentence(self) -> str:
        """`since 2026-11-20/03-00-00-000 (3 runs), after 12 good runs; commit 12ab..34cd; torch 2.12 -> 2.13`."""
        start = f"since {self.run} ({counted(self.bad, 'run')})" if self.run else "new in this run"
        if self.earliest:
            return f"{start}, in every run so far" if self.run else ""
        after = f"after {counted(self.good, 'good run')}" if self.good else f"before that {self.before}"
        commits = f"commit {self.commits}" if self.commits else ""
        shown = ", ".join(self.versions[:_MOST_VERSIONS])
        more = f" and {len(self.versions) - _MOST_VERSIONS} more" if len(self.versions) > _MOST_VERSIONS else ""
        return "; ".join(filter(None, (f"{start}, {after}", commits, shown + more)))


def since_when(folder: Path, records: Sequence[Record]) -> dict[Cell, Since]:
    """Returns since when each cell of a run that did not end as expected fails, as far as its history says.

    Args:
        folder: the run's; the history lies beside it.
        records: judged, one per planned cell.
    """
    failing = [record for record in rows_of(records) if record.verdict in UNEXPECTED][:_MOST_CELLS]
    if not failing:
        return {}
    outputs, made = folder.absolute().parent.parent, circumstances(folder)
    name = folder.absolute().relative_to(outputs).as_posix()
    try:
        with open_history(outputs / HISTORY_FILE, create=False, wait_s=_WAIT_S) as history:
            past = {record.cell: history.entries(record.cell.name, _MOST_RUNS) for record in failing}
    except BatchExportError:
        return {}
    return {record.cell: since(record, _earlier(past[record.cell], name, made), made) for record in failing}


def since(record: Record, earlier: Sequence[Entry], made: Surroundings) -> Since:
    """Returns since when one cell fails as it does now.

    Args:
        record: of the present run, not as expected.
        earlier: the cell's entries of earlier runs, oldest first.
        made: the present run's circumstances.
    """
    start = len(earlier)
    while start and _same(earlier[start - 1], record):
        start -= 1
    stop = start
    while stop and earlier[stop - 1].verdict not in UNEXPECTED:
        stop -= 1
    first = earlier[start] if start < len(earlier) else None
    run, bad = first.run if first else "", len(earlier) - start + 1
    if not start:
        return Since(run, bad, 0, earliest=True)
    last = earlier[start - 1]
    versions = msgspec.json.decode(first.versions.encode()) if first else versions_of(made)
    return Since(
        run,
        bad,
        start - stop,
        before=f"{last.verdict} {last.stage} {last.error_class}".strip(),
        commits=_range(last.commit, first.commit if first else made.commit),
        versions=_changed(msgspec.json.decode(last.versions.encode()), versions),
    )


def earliest(found: Iterable[Since]) -> Since | None:
    """Returns the one that goes back furthest: what a cause with several cells is told by; None when there is none."""
    return max(found, key=lambda one: (one.bad, one.good), default=None)


def _earlier(entries: Sequence[Entry], name: str, made: Surroundings) -> list[Entry]:
    """Entries of runs before the present one, which may be in the history already, and not be the last of it."""
    return [entry for entry in entries if entry.run != name and (not made.started or entry.started < made.started)]


def _same(entry: Entry, record: Record) -> bool:
    now = (record.verdict, record.stage, record.error_class)
    return (entry.verdict, entry.stage, entry.error_class) == now


def _range(old: str, new: str) -> str:
    return f"{old}..{new}" if old and new and old != new else new or old


def _changed(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(
        f"{name} {old.get(name, 'absent')} -> {new.get(name, 'absent')}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    )
