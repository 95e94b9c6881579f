"""The formats of a report, one table: what each is called, which file of a run's folder it is, how it is made.

A run's folder, records, summary and comparison arrive; bytes or files leave. Nothing is run or judged here.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from rich.console import Console

from batch_export.record import Cell, Record
from batch_export.report.compare import Comparison
from batch_export.report.html import html_report
from batch_export.report.html_context import context_of
from batch_export.report.junit import junit_xml
from batch_export.report.markdown import markdown
from batch_export.report.parquet import parquet_bytes
from batch_export.report.rows import rows_of
from batch_export.report.run_folder import SUMMARY_FILE, write_whole
from batch_export.report.sarif import sarif_text
from batch_export.report.since import Since
from batch_export.report.spreadsheet import csv_text
from batch_export.report.summary import Summary
from batch_export.report.terminal import tell
from batch_export.runner.surroundings import circumstances

_TEXT_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Subject:
    """What a report is about.

    Attributes:
        folder: the run's; what is known beside the records (models, history, commit) is found from there.
        records: judged, one per planned cell; they may lie on the disk.
        summary: of these.
        comparison: with a base, if there is one.
        place: the folder that a report is written to, which its links start from; the run's by default.
        since: since when cells fail.
    """

    folder: Path
    records: Sequence[Record]
    summary: Summary
    comparison: Comparison | None = None
    place: Path | None = None
    since: Mapping[Cell, Since] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes:
        file: its name in the run's folder.
        render: makes the file's content.
        shown: whether a terminal can show it.
    """

    file: str
    render: Callable[[Subject], bytes]
    shown: bool = True


def _text(subject: Subject) -> bytes:
    console = Console(file=io.StringIO(), width=_TEXT_WIDTH, no_color=True, force_terminal=False)
    with console.capture() as capture:
        rows = rows_of(subject.records)
        tell(console, rows, subject.summary, subject.folder, subject.comparison, since=subject.since)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()).encode()


def _html(subject: Subject) -> bytes:
    context = context_of(subject.folder, subject.records, subject.summary, subject.comparison, subject.place)
    context = replace(context, since=subject.since)
    return html_report(subject.records, subject.summary, context).encode()


def _markdown(subject: Subject) -> bytes:
    marks = subject.comparison.marks() if subject.comparison is not None else None
    return markdown(rows_of(subject.records), subject.summary, subject.since, marks).encode()


def _json(subject: Subject) -> bytes:
    return msgspec.json.format(msgspec.json.encode(subject.summary.as_json())) + b"\n"


def _csv(subject: Subject) -> bytes:
    return csv_text(subject.records).encode()


def _junit(subject: Subject) -> bytes:
    return junit_xml(subject.records, timestamp=circumstances(subject.folder).started[:19]).encode()


def _sarif(subject: Subject) -> bytes:
    return sarif_text(rows_of(subject.records), Path.cwd(), subject.summary.command).encode()


def _parquet(subject: Subject) -> bytes:
    return parquet_bytes(subject.records)


FORMATS = {
    "text": Format("summary.txt", _text),
    "html": Format("report.html", _html, shown=False),
    "markdown": Format("summary.md", _markdown),
    "json": Format(SUMMARY_FILE, _json),
    "csv": Format("summary.csv", _csv),
    "junit": Format("junit.xml", _junit),
    "sarif": Format("sarif.json", _sarif),
    "parquet": Format("summary.parquet", _parquet, shown=False),
}
"""By the word after `report RUN --format`."""
SUMMARIES = ("json", "markdown", "csv")
"""Formats of every run, made of its records alone; written even when the run could not finish."""
REPORTS = ("junit", "sarif", "html")
"""Formats of every run that say more than its records: they come after its comparison and its row in the history."""


def write(subject: Subject, names: Iterable[str]) -> None:
    """Writes these formats into the run's folder, each whole or not at all."""
    for name in names:
        write_whole(subject.folder / FORMATS[name].file, FORMATS[name].render(subject))
