"""Expectations kept honest: entries for what fails today, and entries that no longer say anything.

Records and expectations go in; entries, YAML text and sentences come out. Nothing is judged here (`verdict.judge`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from math import prod

from batch_export.record import AXES, Cell, Record
from batch_export.report.redact import shorten
from batch_export.spec import Exclusion, Expectation, RunSpec
from batch_export.words import one_line

_WIDENED = ("opset", "provider", *(axis for axis in AXES if axis not in ("opset", "provider", "model", "exporter")))
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/ ()")


def suggest(records: Sequence[Record]) -> tuple[Expectation, ...]:
    """Entries that declare today's failures: few, and none covers a cell that passes or fails otherwise.

    Cells without a record are not failures of the model, and unexpected passes want an entry removed: neither is
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
        values = {name: getattr(entry, name) for name in AXES} | {
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


def stale(spec: RunSpec, records: Sequence[Record], known_models: Collection[str] = ()) -> tuple[str, ...]:
    """Sentences about expectations that name no model, or match nothing that fails.

    An entry about a model, provider or other value that this run leaves out is not stale: the run says nothing of it.
    Nor is one of which a shard, or a run of what failed last, has but some of the cells.

    Args:
        spec: what the run was asked for.
        records: judged, one per planned cell.
        known_models: names of all model configs; an entry that names none of them is stale wherever it is run. Names
            of collections (`timm:...`) are looked for in the run only.
    """
    sentences = []
    names = {*known_models, *spec.matrix.words["model"]}
    for entry in spec.expectations:
        matched = [record for record in records if entry.matches(record.cell)]
        ran = [record for record in matched if record.verdict not in ("skip", "missing")]
        if known_models and ":" not in entry.model and not _among(entry.model, names):
            sentences.append(f"{_described(entry)}: no model has this name")
        elif ran and len(matched) == _matched(entry, spec) and all(one.verdict in ("pass", "xpass") for one in ran):
            sentences.append(f"{_described(entry)}: nothing that it matches fails any more; remove it")
    return tuple(sentences)


def stale_exclusions(spec: RunSpec) -> tuple[str, ...]:
    """Sentences about entries of `matrix.exclude` that match no cell of the matrix, shards of other runs included."""
    sentences = []
    words = spec.matrix.words
    judged = [axis for axis in AXES if axis != "model" or _knows_all_models(spec)]
    for entry in spec.matrix.exclude:
        lacking = [f"{axis} {glob!r}" for axis in judged if not _among(glob := getattr(entry, axis), words[axis])]
        if lacking:
            why = f"the matrix has no {' and no '.join(lacking)}"
            sentences.append(f"{_described(entry)}: matches no cell; {why}")
    return tuple(sentences)


def _matched(entry: Expectation, spec: RunSpec) -> int:
    """How many cells of the whole matrix an entry matches; -1 where nobody can say."""
    if not _knows_all_models(spec):
        return -1
    return prod(sum(fnmatchcase(word, getattr(entry, axis)) for word in spec.matrix.words[axis]) for axis in AXES)


def _knows_all_models(spec: RunSpec) -> bool:
    """Whether it is known which models the matrix has; a shard of an older version does not say it."""
    return bool(spec.matrix.chosen) or not spec.runner.shard


def _among(glob: str, words: Iterable[str]) -> bool:
    return any(fnmatchcase(word, glob) for word in words)


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
        **cell.words,
    )
    for axis in _WIDENED:
        wider = replace(entry, **{axis: "*"})
        if all(other in same for other in universe if wider.matches(other)):
            entry = wider
    return entry


def _described(entry: Expectation | Exclusion) -> str:
    named = [
        f"{axis} {value}" for axis in (*AXES, "stage", "error_class") if (value := getattr(entry, axis, "*")) != "*"
    ]
    return f"{' '.join(named) or 'every cell'} ({entry.reason})"


def _scalar(value: str) -> str:
    plain = value and set(value) <= _PLAIN and value[0].isalpha() and value == value.strip()
    if plain and value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n"):
        return value
    return "'" + value.replace("'", "''") + "'"
