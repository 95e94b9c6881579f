"""Workflow commands that make GitHub show unexpected cells beside a change. Records go in, lines come out."""

from __future__ import annotations

from collections.abc import Sequence

from batch_export.record import Cell, Record
from batch_export.report.failures import group_failures
from batch_export.report.redact import shorten

MOST = 10
"""GitHub shows no more of one kind per step."""


def github_lines(records: Sequence[Record], marks: dict[Cell, str] | None = None) -> list[str]:
    """Lines such as `::error title=...::...`, a cause each, new ones first, at most ten; old ones are warnings."""
    lines = []
    several = len({record.cell.exporter for record in records}) > 1
    by_cell = {record.cell: record for record in records}
    for group in group_failures(records, name_exporter=several, marks=marks)[:MOST]:
        still = bool(marks) and all((marks or {}).get(cell) == "still" for cell in group.cells)
        first = by_cell[group.cells[0]]
        place = _place(first.failure.source) if first.failure and first.failure.source else ""
        title = " ".join(filter(None, (group.news, f"{group.title}: {group.kind}")))
        lines.append(
            f"::{'warning' if still else 'error'} {place}title={_property(title)}::"
            f"{_data(shorten(group.cause or group.kind))}"
        )
    return lines


def _place(source: str) -> str:
    path, _, line = source.rpartition(":")
    if not path or not line.isdigit() or path.startswith(("/", "~")):
        return ""  # only files of the checkout can be annotated
    return f"file={_property(path)},line={line},"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
