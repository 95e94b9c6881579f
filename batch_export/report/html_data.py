"""The data of the HTML report: records become one compact JSON value, texts stored once, numbers cut to three digits.

Records, a summary, and what is known beside them arrive; a plain dict leaves. Home folders are shortened here, once
for every text; environment variables are never looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batch_export import axes
from batch_export.numbers.facts import OutputFacts
from batch_export.record import NUMERIC, Cell, Record, RunFacts, holds_for, untried_sizes
from batch_export.report.compare import TITLES, Comparison
from batch_export.report.compare_text import deciding, not_compared
from batch_export.report.failures import group_failures
from batch_export.report.history import Entry
from batch_export.report.next_steps import QUESTIONS, UNASKED
from batch_export.report.redact import shorten
from batch_export.report.rows import rows_of
from batch_export.report.since import Since
from batch_export.report.summary import Summary
from batch_export.report.wording import OUTCOMES, UNEXPECTED, by_distribution_text, by_ties_text, legends
from batch_export.spec import ModelSpec
from batch_export.words import one_line

_HULL_POINTS = 10
_HISTORY_RUNS = 20
_DETAIL_CHARACTERS = 1500
_SAID = (by_distribution_text, by_ties_text, holds_for, untried_sizes)
"""Sentences about how far a cell's outcome goes; empty ones are left out."""


@dataclass(frozen=True, slots=True)
class Bisected:
    """What `bisect` found out about a cell: a sentence, the first wrong node, where it comes from, who is to blame."""

    text: str
    node: str = ""
    operator: str = ""
    source: str = ""
    module: str = ""
    blame: str = ""


@dataclass(frozen=True, slots=True)
class ReportContext:
    """What is known of a run beside its records.

    Attributes:
        models: specs by name, for the requested contract.
        realised: what the Check stage read in the file, by the key of its action.
        history: entries of earlier runs by cell name, oldest first.
        comparison: with a base, if there is one.
        provenance: lines such as `("torch", "2.13.0")`.
        artifacts: the store relative to the report's folder; empty when files are not linked.
        tolerances: `(atol, rtol)` by dtype name.
        stale: expectations and exclusions that match nothing.
        disagreements: sentences about files that not every provider makes the same of.
        logs: the run's folder relative to the report's; empty when logs are not linked.
        run: the run's folder, as the verbs take it.
        bisected: what `bisect` found, by cell.
        since: since when cells fail.
    """

    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    realised: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    history: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    comparison: Comparison | None = None
    provenance: Sequence[tuple[str, str]] = ()
    artifacts: str = ""
    tolerances: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    stale: Sequence[str] = ()
    disagreements: Sequence[str] = ()
    title: str = "batch_export"
    repro: str = "python -m batch_export"
    logs: str = "."
    run: str = ""
    bisected: Mapping[Cell, Bisected] = field(default_factory=dict)
    since: Mapping[Cell, Since] = field(default_factory=dict)


class _Texts:
    """Every text once; a text is its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._shortened: dict[str | None, int] = {}

    def __call__(self, text: str | None) -> int:
        known = self._shortened.get(text)
        if known is None:
            known = self._numbers.setdefault(shorten(text or ""), len(self._numbers))
            self._shortened[text] = known
        return known

    def all(self) -> list[str]:
        return list(self._numbers)


def report_data(
    records: Sequence[Record], summary: Summary, context: ReportContext, pack: Callable[[list[Any]], Any] = list
) -> dict[str, Any]:
    """Returns the value that the report's script works on; `page/src/wire.ts` names the positions.

    Args:
        records: judged, one per planned cell; each is read once.
        summary: of these.
        context: what is known beside them.
        pack: made of each cell's row: thousands of rows as nested lists take ten times what their JSON does.
    """
    text = _Texts()
    text("")
    marks = context.comparison.marks() if context.comparison else {}
    changes: dict[Cell, list[str]] = {}
    for change in context.comparison.changes if context.comparison else ():
        changes.setdefault(change.cell, []).append(f"{change.kind}: {change.text}")
    rows = [pack(_row(record, text, context, marks, changes)) for record in records]
    known = rows_of(records)
    several = len({record.cell.exporter for record in known}) > 1
    numbers = {record.cell: index for index, record in enumerate(known)}
    clusters = [
        [
            *map(text, (group.verdict, group.title, group.kind, group.cause)),
            [numbers[c] for c in group.cells],
            text(group.since),
            group.new,
        ]
        for group in group_failures(known, name_exporter=several, marks=marks, since=context.since)
    ]  # where it happens and what to do about it, the script takes from the first cell
    return {
        "title": context.title,
        "axes": [[axis, key, int(axis in NUMERIC)] for axis, key in Cell.axes().items()],
        "story": story(summary, context.comparison),
        "command": shorten(summary.command),
        "counts": {outcome: summary.outcomes[outcome] for outcome in OUTCOMES},
        "unexpected": list(UNEXPECTED),
        "planned": summary.planned,
        "speedUp": summary.speed_up,
        "when": _when(summary, context),
        "titles": dict(TITLES),
        "contended": not_compared(context.comparison) if context.comparison else "",
        "decides": deciding(context.comparison) if context.comparison and context.comparison.of("busy") else "",
        "provenance": [[name, shorten(value)] for name, value in context.provenance],
        "artifacts": shorten(context.artifacts),
        "logs": shorten(context.logs),
        "tolerances": dict(context.tolerances),
        "repro": shorten(context.repro),
        "run": shorten(context.run),
        "questions": QUESTIONS,
        "unasked": UNASKED,
        "stale": [shorten(line) for line in context.stale],
        "disagreements": [shorten(line) for line in context.disagreements],
        "notes": [shorten(note) for note in legends(known)],
        "changes": _changes(context.comparison, numbers, text),
        "clusters": clusters,
        "cells": rows,
        "text": text.all(),
    }


def _when(summary: Summary, context: ReportContext) -> list[list[str]]:
    """What a reader asks first: when, of which commit, where, how long."""
    known = dict(context.provenance)
    took = summary.counts.wall_s
    shown = {
        "started": known.get("started", "")[:16].replace("T", " ") + (" UTC" if known.get("started") else ""),
        "commit": known.get("commit", ""),
        "host": known.get("name", ""),
        "took": f"{took:.1f} s" if 0 < took < 120 else f"{took / 60:.0f} min" if took else "",
    }
    return [[name, shorten(value)] for name, value in shown.items() if value]


def story(summary: Summary, comparison: Comparison | None) -> str:
    """One line: what is new against the base, or what the counts come to."""
    if comparison is not None:
        return f"{comparison.story()} (against {shorten(comparison.base)})"
    bad = summary.unexpected
    if summary.nothing_tested:
        return summary.nothing_tested
    if bad:
        return f"{bad} of {summary.planned} cells did not end as expected"
    return f"all {summary.planned} cells ended as expected"


def _changes(comparison: Comparison | None, numbers: Mapping[Cell, int], text: _Texts) -> list[list[Any]]:
    if comparison is None:
        return []
    return [[c.kind, c.cell.name, numbers.get(c.cell, -1), text(c.text)] for c in comparison.changes]


def _row(
    record: Record,
    text: _Texts,
    context: ReportContext,
    marks: Mapping[Cell, str],
    changes: Mapping[Cell, Sequence[str]],
) -> list[Any]:
    cell, latency, onnx = record.cell, record.latency_ms, record.onnx
    return [
        *(text(value) if isinstance(value, str) else value for value in cell.values),
        *(OUTCOMES.index(record.verdict), text(record.stage), text(record.error_class)),
        *(text(one_line(record.message)), digits(record.max_abs), digits(record.max_rel)),
        [digits(latency.median), digits(latency.p95), digits(latency.ci_low), digits(latency.ci_high), latency.runs,
         int(latency.contended)] if latency else 0,
        digits(record.eager_ms),
        [text(onnx.path), text(onnx.sha256[:16]), onnx.bytes, onnx.nodes] if onnx else 0,
        [[text(a.mnemonic), int(a.origin == "cached"), digits(a.seconds)] for a in record.actions],
        _runs(record, text),
        [text(f.stage + " " + f.error_class + ": " + one_line(f.message)) for f in record.findings],
        text(record.log),
        _where(record, text, context.bisected.get(cell)),
        text(marks.get(cell, "")),
        [text(line) for line in changes.get(cell, ())],
        _past(context.history.get(cell.name, ()), text),
        _contract(record, context, text),
        [[text(name), count] for name, count in record.placement.items()],
        text(str(record.extra.get("float64", ""))),
        text("; ".join(filter(None, (sentence(record) for sentence in _SAID)))),
    ]  # fmt: skip


def _where(record: Record, text: _Texts, found: Bisected | None) -> list[int] | int:
    """The first wrong node: as `bisect` found it, else as the failure names it; and the failure's details."""
    failure = record.failure or next(iter(record.findings), None)
    details = failure.details[-_DETAIL_CHARACTERS:] if failure else ""
    if found is not None:
        names = (found.source, found.node, found.operator, details, found.module, found.blame, found.text)
        return [text(name) for name in names]
    if failure is None:
        return 0
    return [text(failure.source), text(failure.node), text(failure.operator), text(details)]


def digits(value: float | None) -> float | int | None:
    """Three significant digits; None for what is not a finite number."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.3g}")
    return int(short) if short.is_integer() and abs(short) < 1e9 else short


def _runs(record: Record, text: _Texts) -> list[list[Any]]:
    """Each run by its worst output; hull and histogram only of the worst run."""
    worst = [max(run.outputs, key=_badness, default=None) for run in record.runs]
    judged = [index for index, output in enumerate(worst) if output is not None]
    shown = max(judged, key=lambda index: _badness(worst[index]), default=-1)
    return [
        _run(run, output, text, plotted=index == shown)
        for index, (run, output) in enumerate(zip(record.runs, worst, strict=True))
    ]


def _badness(output: OutputFacts | None) -> tuple[bool, float]:
    return (False, -1.0) if output is None else (output.max_abs is None, output.max_abs or 0.0)


def _run(run: RunFacts, worst: OutputFacts | None, text: _Texts, *, plotted: bool) -> list[Any]:
    where = ", ".join(f"{axis}={size}" for axis, size in run.sizes.items()) or "example"
    where = f"{where}, {run.variant}" if run.variant else where
    refusal = run.error or run.rejected
    if worst is None:
        return [text(where), text(one_line(refusal))]
    return [
        *(text(where), text(one_line(refusal)), text(worst.name), text(worst.expected_dtype), digits(worst.max_abs)),
        *(digits(worst.max_rel), worst.unequal, worst.count, worst.non_finite_mismatches),
        text(f"{worst.expected_dtype}[{', '.join(map(str, worst.expected_shape))}]"),
        *(
            [
                [[digits(size), digits(error)] for size, error in _thinned(worst.hull)],
                [[decade, count] for decade, count in worst.decades],
                _worst_element(worst, text),
            ]
            if plotted
            else []
        ),
    ]


def _worst_element(output: OutputFacts, text: _Texts) -> list[Any] | int:
    """Its index, eager's value, the file's, the distance in units in the last place, elements beyond the tolerance."""
    if output.worst_index is None or output.worst_values is None:
        return 0
    index = f"[{', '.join(map(str, output.worst_index))}]"
    return [text(index), *map(text, output.worst_values), digits(output.max_ulp), output.outside]


def _thinned(hull: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    if len(hull) <= _HULL_POINTS:
        return hull
    step = (len(hull) - 1) / (_HULL_POINTS - 1)
    return [hull[round(index * step)] for index in range(_HULL_POINTS)]


def _past(entries: Sequence[Entry], text: _Texts) -> list[Any] | int:
    """Verdicts (a digit each), times, latencies, errors, bytes and seconds of earlier runs; 0 when there are none."""
    if not entries:
        return 0
    entries = entries[-_HISTORY_RUNS:]
    return [
        "".join(str(OUTCOMES.index(entry.verdict)) for entry in entries),
        text(" ".join(entry.started[:16] for entry in entries)),
        _series([None if entry.contended else digits(entry.latency) for entry in entries]),
        _series([digits(entry.max_abs) for entry in entries]),
        _series([entry.bytes for entry in entries]),
        _series([digits(entry.export_s) for entry in entries]),
    ]


def _series(values: list[float | int | None]) -> list[float | int | None]:
    """The values; a single one where all are alike, as sizes of files mostly are."""
    return values[:1] if len(set(values)) == 1 else values


def _contract(record: Record, context: ReportContext, text: _Texts) -> list[list[int]]:
    """Rows of requested beside realised: opset, inputs, outputs."""
    model = context.models.get(record.cell.model)
    key = next((action.key for action in record.actions if action.mnemonic == "Check"), "")
    found = context.realised.get(key, {})
    rows: list[tuple[str, str, str]] = []
    if record.onnx is not None:
        rows.append(("opset", str(record.cell.opset), str(found.get("opset", record.onnx.opset))))
    inputs = {str(value["name"]): _tensor(value["dtype"], value["shape"]) for value in found.get("inputs", ())}
    if model is not None and found:
        leaves = [leaf for leaf in model.inputs if leaf.dtype]
        for name, leaf in zip(axes.input_names(model), leaves, strict=True):
            shape = [axes.dimension(model, entry, record.cell.dynamic) for entry in leaf.shape]
            rows.append((name, _tensor(leaf.dtype, shape), inputs.get(name, "not in the file")))
    rows.extend((str(v["name"]), "", _tensor(v["dtype"], v["shape"])) for v in found.get("outputs", ()))
    return [[text(name), text(asked), text(got)] for name, asked, got in rows]


def _tensor(dtype: str, shape: Sequence[Any] | None) -> str:
    return f"{dtype}[{', '.join('?' if size is None else str(size) for size in shape or ())}]"
