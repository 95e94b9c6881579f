"""The public table: what each architecture came to under each exporter and setting, with every failure and every skip.

Judged records arrive, Markdown leaves. The denominator of a share is every model that the run named and eager runs;
what could not be built is counted and listed beside it. Nothing is read or judged here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from batch_export.record import Record
from batch_export.report.redact import shorten
from batch_export.report.wording import TIES_MARK, legends
from batch_export.steps import EXPORTING
from batch_export.words import one_line

Column = tuple[str, ...]
"""An exporter, a dynamic-shape setting, and what else tells columns of the run apart: opsets, providers."""

_MOST_WORDS = 240
_PACKAGES = re.compile(r"[^\s(']*/site-packages/")
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
    for record, column in zip(records, columns_of(records), strict=True):
        columns.setdefault(column, []).append(record)
    return {column: _totals(of) for column, of in columns.items()}


def columns_of(records: Sequence[Record]) -> list[Column]:
    """Returns the column of each record."""
    further = [axis for axis in ("opset", "provider") if len({record.cell.path[axis] for record in records}) > 1]
    return [
        (record.cell.exporter, record.cell.dynamic, *(record.cell.path[axis] for axis in further)) for record in records
    ]


def rows_of(records: Sequence[Record]) -> dict[str, dict[Column, Record]]:
    """Returns the record of each model in each column, by the models' names."""
    rows: dict[str, dict[Column, Record]] = {}
    for record, column in zip(records, columns_of(records), strict=True):
        rows.setdefault(record.cell.model, {})[column] = record
    return dict(sorted(rows.items()))


@dataclass(frozen=True, slots=True)
class About:
    """What the table is of.

    Attributes:
        versions: of the packages that the page names, by distribution.
        names: how many names each collection has, of which the run took some.
        command: what the run was started with.
    """

    versions: Mapping[str, str]
    names: Mapping[str, int] = field(default_factory=dict)
    command: str = ""


def extent(records: Sequence[Record], about: About) -> str:
    """Says how much of each collection is in the table: `a sample: 30 of the 1,419 names of transformers`."""
    taken = Counter(model.partition(":")[0] for model in rows_of(records) if ":" in model)
    parts = [
        f"{'all' if taken[name] == there else f'{taken[name]:,} of the'} {there:,} names of {name}"
        for name, there in about.names.items()
    ]
    is_sample = any(taken[name] < there for name, there in about.names.items())
    return f"{'a sample: ' if is_sample else ''}{', '.join(parts)}" if parts else ""


def markdown(records: Sequence[Record], about: About) -> str:
    """Returns the page; `records` are of one run, judged."""
    named = ", ".join(f"{name} {version}" for name, version in about.versions.items())
    of = extent(records, about)
    parts = [
        "# Architectures that nobody chose\n",
        f"With {named}. Written by `batch-export report world RUN -o docs/world.md`; [collections.md](collections.md) "
        "says how the models are made, [verification.md](verification.md) what passing means.\n",
        f"{of[0].upper()}{of[1:]}.\n" if of else "",
        f"The run: `{about.command}`\n" if about.command else "",
        _shares(records),
        _failures(records),
        _skips(records),
        _all(records),
    ]
    return "\n".join(part for part in parts if part)


def _totals(records: Sequence[Record]) -> Totals:
    unbuilt = [record for record in records if is_unbuilt(record)]
    rest = [record for record in records if not is_unbuilt(record)]
    failed = Counter(record.stage or record.verdict for record in rest if not is_right(record))
    return Totals(len(records), len(unbuilt), sum(map(is_right, rest)), dict(sorted(failed.items())))


def is_unbuilt(record: Record) -> bool:
    """Whether no exporter was asked: the cell was skipped, or eager does not run the model."""
    return record.verdict == "skip" or record.stage in _NOT_EXPORT


def is_right(record: Record) -> bool:
    """Whether the exporter's file is right."""
    return record.verdict in ("pass", "xpass")


def _shares(records: Sequence[Record]) -> str:
    lines = [
        "| exporter | axes | named | not built or not run by eager | asked | right | share | failed at |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for (exporter, *setting), total in totals(records).items():
        share = f"{100 * total.passed / total.asked:.1f} %" if total.asked else "-"
        failed = ", ".join(f"{stage} {count}" for stage, count in total.failed.items()) or "-"
        lines.append(
            f"| {exporter} | {' '.join(setting)} | {total.named} | {total.unbuilt} | {total.asked} | {total.passed} "
            f"| {share} | {failed} |"
        )
    return "\n".join([*lines, ""])


def _failures(records: Sequence[Record]) -> str:
    wrong = [record for record in records if not is_unbuilt(record) and not is_right(record)]
    if not wrong:
        return ""
    lines = ["## Failures\n", "| cell | stage | class | message |", "|---|---|---|---|"]
    lines += [
        f"| `{record.cell.name}` | {record.stage} | {record.error_class} | {_words(record.message)} |"
        for record in wrong
    ]
    return "\n".join([*lines, "", "`batch-export repro CELL` writes a script of a failure.", ""])


def _skips(records: Sequence[Record]) -> str:
    reasons: dict[str, dict[str, None]] = {}
    for record in records:
        if is_unbuilt(record):
            message = record.message.replace(f"model {record.cell.model!r} ", "the model ")
            reasons.setdefault(_words(message), {})[record.cell.model] = None
    if not reasons:
        return ""
    lines = ["## Skipped: not built, not run by eager, or without the setting\n", "| models | reason |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in models)} | {reason} |" for reason, models in reasons.items()]
    return "\n".join([*lines, ""])


def _all(records: Sequence[Record]) -> str:
    """A row for each model: outcome, seconds of capture and translation, and nodes, in each column."""
    columns = list(totals(records))
    heads = [" ".join(column) for column in columns]
    lines = ["## All\n", f"| model | {' | '.join(heads)} |", f"|---|{'---|' * len(columns)}"]
    for model, row in rows_of(records).items():
        lines.append(f"| `{model}` | {' | '.join(_cell(row.get(column)) for column in columns)} |")
    told = ["Seconds are those of capture and translation, then the file's nodes.", *legends(records)]
    return "\n".join([*lines, "", "  \n".join(told), ""])


def _cell(record: Record | None) -> str:
    if record is None:
        return ""
    if record.verdict == "skip":
        return "skip"
    if not is_right(record):
        return f"**{record.stage or record.verdict}**"
    nodes = f", {record.onnx.nodes}" if record.onnx is not None else ""
    tied = f" {TIES_MARK}" if record.by_ties else ""
    return f"{export_seconds(record):.1f} s{nodes}{tied}"


def export_seconds(record: Record) -> float:
    """Seconds of capture and translation."""
    return sum(action.seconds for action in record.actions if action.mnemonic in EXPORTING)


def message_of(record: Record, most: int) -> str:
    """Returns a record's message on one line: no longer than that, and without where packages are installed."""
    return _cut(_PACKAGES.sub("", shorten(one_line(record.message))), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _words(message: str) -> str:
    return _cut(_PACKAGES.sub("", shorten(one_line(message))).replace("|", "\\|").replace("<", "&lt;"), _MOST_WORDS)
