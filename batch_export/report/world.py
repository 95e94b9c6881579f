"""The public table: what each architecture came to under each exporter and setting, with every failure and every skip.

Judged records arrive, Markdown leaves. The denominator of a share is every model that the run named and eager runs;
what could not be built is counted and listed beside it. Nothing is read or judged here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batch_export.record import Record
from batch_export.steps import EXPORTING
from batch_export.words import one_line

Column = tuple[str, str]
"""An exporter and a dynamic-shape setting."""

_MOST_WORDS = 240
_NOT_EXPORT = ("model", "environment")
"""Stages at which no exporter was asked yet."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What a column came to.

    Attributes:
        named: cells of the column.
        unbuilt: those that were skipped, or whose model eager does not run.
        passed: those that are right.
        failed: the others, by the stage where they failed.
    """

    named: int
    unbuilt: int
    passed: int
    failed: Mapping[str, int]

    @property
    def asked(self) -> int:
        """Cells that the exporter was asked for: the denominator of the share."""
        return self.named - self.unbuilt


def totals(records: Sequence[Record]) -> dict[Column, Totals]:
    """Returns what each column came to, in the order of the records."""
    columns: dict[Column, list[Record]] = {}
    for record in records:
        columns.setdefault((record.cell.exporter, record.cell.dynamic), []).append(record)
    return {column: _totals(of) for column, of in columns.items()}


def markdown(records: Sequence[Record], versions: Mapping[str, str]) -> str:
    """Returns the page.

    Args:
        records: of one run, judged; cells of several opsets or providers are told apart in the list of failures only.
        versions: of the packages that the page names, by distribution.
    """
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    parts = [
        "# Architectures that nobody chose\n",
        f"With {named}. Written by `batch-export report world RUN -o docs/world.md`; [collections.md](collections.md) "
        "says how the models are made, [verification.md](verification.md) what passing means.\n",
        _shares(records),
        _failures(records),
        _skips(records),
        _all(records),
    ]
    return "\n".join(part for part in parts if part)


def _totals(records: Sequence[Record]) -> Totals:
    unbuilt = [record for record in records if record.verdict == "skip" or record.stage in _NOT_EXPORT]
    rest = [record for record in records if record.verdict != "skip" and record.stage not in _NOT_EXPORT]
    failed = Counter(record.stage or record.verdict for record in rest if not _is_right(record))
    return Totals(len(records), len(unbuilt), sum(map(_is_right, rest)), dict(sorted(failed.items())))


def _is_right(record: Record) -> bool:
    return record.verdict in ("pass", "xpass")


def _shares(records: Sequence[Record]) -> str:
    lines = [
        "| exporter | axes | named | not built or not run by eager | asked | right | share | failed at |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for (exporter, dynamic), total in totals(records).items():
        share = f"{100 * total.passed / total.asked:.1f} %" if total.asked else "-"
        failed = ", ".join(f"{stage} {count}" for stage, count in total.failed.items()) or "-"
        lines.append(
            f"| {exporter} | {dynamic} | {total.named} | {total.unbuilt} | {total.asked} | {total.passed} | {share} "
            f"| {failed} |"
        )
    return "\n".join([*lines, ""])


def _failures(records: Sequence[Record]) -> str:
    wrong = [
        record
        for record in records
        if record.verdict != "skip" and record.stage not in _NOT_EXPORT and not _is_right(record)
    ]
    if not wrong:
        return ""
    lines = ["## Failures\n", "| cell | stage | message |", "|---|---|---|"]
    lines += [f"| `{record.cell.name}` | {record.stage} | {_words(record.message)} |" for record in wrong]
    return "\n".join([*lines, "", "`batch-export repro CELL` writes a script of a failure.", ""])


def _skips(records: Sequence[Record]) -> str:
    reasons: dict[str, dict[str, None]] = {}
    for record in records:
        if record.verdict == "skip" or record.stage in _NOT_EXPORT:
            reasons.setdefault(_words(record.message), {})[record.cell.model] = None
    if not reasons:
        return ""
    lines = ["## Not built, or not run by eager\n", "| models | reason |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in models)} | {reason} |" for reason, models in reasons.items()]
    return "\n".join([*lines, ""])


def _all(records: Sequence[Record]) -> str:
    """A row for each model: outcome, seconds of capture and translation, and nodes, in each column."""
    columns = list(totals(records))
    cells: dict[str, dict[Column, Record]] = {}
    for record in records:
        cells.setdefault(record.cell.model, {})[record.cell.exporter, record.cell.dynamic] = record
    heads = [f"{exporter} {dynamic}" for exporter, dynamic in columns]
    lines = ["## All\n", f"| model | {' | '.join(heads)} |", f"|---|{'---|' * len(columns)}"]
    for model, row in sorted(cells.items()):
        lines.append(f"| `{model}` | {' | '.join(_cell(row.get(column)) for column in columns)} |")
    return "\n".join([*lines, "", "Seconds are those of capture and translation, then the file's nodes.", ""])


def _cell(record: Record | None) -> str:
    if record is None:
        return ""
    if record.verdict == "skip":
        return "skip"
    if not _is_right(record):
        return f"**{record.stage or record.verdict}**"
    seconds = sum(action.seconds for action in record.actions if action.mnemonic in EXPORTING)
    nodes = f", {record.onnx.nodes}" if record.onnx is not None else ""
    return f"{seconds:.1f} s{nodes}"


def _words(message: str) -> str:
    text = one_line(message).replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= _MOST_WORDS else f"{text[: _MOST_WORDS - 3]}..."
