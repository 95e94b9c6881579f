"""The disagreements of a run: the files about which its providers do not agree, with what the vote says.

Judged records arrive in the plan's order, sentences leave, those that say the same of several files as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from batch_export.judge.vote import Disagreement, disagreement
from batch_export.record import Record
from batch_export.report.rows import rows_of

_MOST_NAMED = 2


def disagreements(records: Sequence[Record]) -> tuple[Disagreement, ...]:
    """Returns what the vote says of each file that not every provider makes the same of; whole records are read only
    where some cell's values differ.
    """
    rows = list(rows_of(records))
    if len({row.cell.provider for row in rows}) < 2:
        return ()
    doubtful = {row.cell.file for row in rows if row.verdict in ("fail", "xfail")}
    files: dict[str, list[Record]] = {}
    for record in _those(records, doubtful):
        files.setdefault(record.cell.file, []).append(record)
    return tuple(filter(None, map(disagreement, files.values())))


def sentences(found: Iterable[Disagreement]) -> tuple[str, ...]:
    """Returns a sentence for everything that is said, with the files that it is said of."""
    files: dict[str, list[str]] = {}
    for one in found:
        files.setdefault(one.says, []).append(one.file)
    return tuple(f"{says} ({_named(names)})" for says, names in files.items())


def plain(found: Iterable[Disagreement]) -> list[dict[str, Any]]:
    """Returns the disagreements as summary.json has them."""
    return [
        {
            "file": one.file,
            "agree": list(one.agree),
            "differ": [list(group) for group in one.differ],
            "refuse": list(one.refuse),
            "alone": list(one.alone),
            "says": one.says,
        }
        for one in found
    ]


def _those(records: Sequence[Record], files: set[str]) -> Iterator[Record]:
    return (record for record in records if record.cell.file in files) if files else iter(())


def _named(files: Sequence[str]) -> str:
    shown = ", ".join(files[:_MOST_NAMED])
    return f"{shown} and {len(files) - _MOST_NAMED} more" if len(files) > _MOST_NAMED else shown
