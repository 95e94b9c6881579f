"""Expectations kept honest: entries for what fails today, and entries that no longer say anything.

Records and expectations go in; entries, YAML text and sentences come out. Nothing is judged here (`verdict.judge`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from batch_export.record import Cell, Record
from batch_export.report.redact import shorten
from batch_export.report.wording import one_line
from batch_export.spec import Expectation
from batch_export.verdict import concerns

_AXES = ("opset", "provider", "dynamic")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/ ()")


def suggest(records: Sequence[Record]) -> tuple[Expectation, ...]:
    """Entries that declare today's failures: few, and none covers a cell that passes or fails otherwise.

    Cells without a record are no failures of the model, and unexpected passes want an entry removed: neither is
    suggested.
    """
    ran = [record for record in records if record.verdict != "skip"]
    entries: dict[Expectation, Expectation] = {}  # by all but the reason, which may hold numbers of one cell
    for record in ran:
        if record.verdict != "fail":
            continue
        same = {other.cell for other in ran if _kind(other) == _kind(record)}
        universe = [other.cell for other in ran if (other.cell.model, other.cell.exporter) == _unit(record.cell)]
        entry = _widened(record, same, universe)
        entries.setdefault(replace(entry, reason=""), entry)
    return tuple(entries.values())


def yaml_text(entries: Iterable[Expectation]) -> str:
    """The entries as the content of a `conf/expect/NAME.yaml`; reasons are to be corrected by whoever keeps them."""
    lines = ["# @package _global_", "expectations:"]
    for entry in entries:
        values = {name: getattr(entry, name) for name in ("model", "dynamic", "opset", "provider", "exporter")} | {
            "stage": entry.stage,
            "error_class": entry.error_class,
            "reason": entry.reason,
            "link": entry.link,
        }
        shown = [f"{name}: {_scalar(value)}" for name, value in values.items() if value not in ("*", "")]
        lines += [f"  - {shown[0]}", *(f"    {line}" for line in shown[1:])]
    if len(lines) == 2:
        lines[1] = "expectations: []"
    return "\n".join(lines) + "\n"


def stale(
    expectations: Sequence[Expectation], records: Sequence[Record], known_models: Collection[str] = ()
) -> tuple[str, ...]:
    """Sentences about entries that match no cell, or none that fails.

    An entry about a model, provider or other value that this run leaves out is not stale: the run says nothing of it.

    Args:
        expectations: the run's.
        records: judged, one per planned cell.
        known_models: names of all model configs; an entry that names none of them is stale wherever it is run.
    """
    sentences = []
    for entry in expectations:
        matched = [record for record in records if concerns(entry, record.cell)]
        ran = [record for record in matched if record.verdict not in ("skip", "missing")]
        if not matched:
            if known_models and not any(fnmatchcase(name, entry.model) for name in known_models):
                sentences.append(f"{_described(entry)}: no model has this name")
            elif _within(entry, [record.cell for record in records]):
                sentences.append(f"{_described(entry)}: matches no cell")
        elif ran and all(record.verdict in ("pass", "xpass") for record in ran):
            sentences.append(f"{_described(entry)}: nothing that it matches fails any more; remove it")
    return tuple(sentences)


def _kind(record: Record) -> tuple[str, ...]:
    cell = record.cell
    return (cell.model, cell.exporter, record.verdict, record.stage, record.error_class)


def _unit(cell: Cell) -> tuple[str, str]:
    return cell.model, cell.exporter


def _widened(record: Record, same: Collection[Cell], universe: Sequence[Cell]) -> Expectation:
    cell = record.cell
    entry = Expectation(
        reason=shorten(one_line(record.message))[:200] or "fails",
        stage=record.stage or "*",
        error_class=record.error_class or "*",
        model=cell.model,
        dynamic=cell.dynamic,
        opset=str(cell.opset),
        provider=cell.provider,
        exporter=cell.exporter,
    )
    for axis in _AXES:
        wider = replace(entry, **{axis: "*"})
        if all(other in same for other in universe if concerns(wider, other)):
            entry = wider
    return entry


def _within(entry: Expectation, cells: Sequence[Cell]) -> bool:
    """Whether each of the entry's globs matches something in the run, only not all at once."""
    return all(
        any(fnmatchcase(str(getattr(cell, axis)), getattr(entry, axis)) for cell in cells)
        for axis in ("model", "dynamic", "opset", "provider", "exporter")
    )


def _described(entry: Expectation) -> str:
    named = [
        f"{axis} {value}"
        for axis in ("model", "dynamic", "opset", "provider", "exporter", "stage", "error_class")
        if (value := getattr(entry, axis)) != "*"
    ]
    return f"{' '.join(named) or 'every cell'} ({entry.reason})"


def _scalar(value: str) -> str:
    plain = value and set(value) <= _PLAIN and value[0].isalpha() and value == value.strip()
    if plain and value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n"):
        return value
    return "'" + value.replace("'", "''") + "'"
