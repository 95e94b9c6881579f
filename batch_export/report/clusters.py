"""Which failing cells share a defect. Records arrive, clusters leave; nothing is printed or judged.

Where an operator or a source line is known, it makes the defect; otherwise the stage, the class and the message do,
without its numbers and without the cell's own names. What was raised is one defect whatever the model and the exporter,
and so is what several exporters raise at one source line, each in its own words; a symptom (values that differ, a
process that ended) says nothing of its cause, so models and exporters stay apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from batch_export.findings.diagnostic import Diagnostic, stable_source, without_numbers
from batch_export.record import PROCESS_STAGES, Cell, Record
from batch_export.report.wording import UNEXPECTED
from batch_export.words import one_line

_SYMPTOMS = ("check", "dynamic", "mismatch", *PROCESS_STAGES, "")
"""Stages whose failures are found in what came out, not raised by what went wrong; records without one are unknown."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cells with one defect.

    Attributes:
        fingerprint: of the defect, the same in every run.
        diagnostic: of its first cell.
        records: in the order given; a repro of any of them stands for all.
    """

    fingerprint: str
    diagnostic: Diagnostic
    records: tuple[Record, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells concerned."""
        return tuple(record.cell for record in self.records)

    @property
    def models(self) -> tuple[str, ...]:
        """The models concerned, in order of first appearance."""
        return tuple(dict.fromkeys(cell.model for cell in self.cells))


def diagnostic(record: Record) -> Diagnostic:
    """Returns what is wrong with a failing record."""
    failure = record.failure or next(iter(record.findings), None)
    return Diagnostic(
        stage=record.stage or record.verdict,
        error_class=record.error_class or record.verdict,
        message=one_line(record.message) or record.verdict,
        operator=(failure.operator if failure is not None else None) or "",
        source=(failure.source if failure is not None else None) or "",
        node=(failure.node if failure is not None else None) or "",
        subject=record.cell.name,
    )


def cluster_key(record: Record) -> tuple[str, ...]:
    """Returns what records of one cluster have in common."""
    found = diagnostic(record)
    if found.operator or found.source:
        return (record.verdict, *found.identity)
    message = without_numbers(_without_names(found.message, record.cell))
    is_symptom = record.stage in _SYMPTOMS and record.verdict != "missing"  # a run that ended is one cause for all
    apart = (record.cell.model, record.cell.exporter) if is_symptom else ()
    return (record.verdict, found.stage, found.error_class, message, *apart)


def _without_names(message: str, cell: Cell) -> str:
    """The message with the names of the cell, its model and its exporter left open."""
    for name in (cell.name, cell.model, cell.exporter):
        message = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "<>", message)
    return message


def clusters(records: Iterable[Record]) -> list[Cluster]:
    """Gathers the unexpected records, the cluster with most cells first."""
    together: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        if record.verdict in UNEXPECTED:
            together.setdefault(cluster_key(record), []).append(record)
    found = []
    for members in _over_exporters(together.values()):
        first = diagnostic(members[0])
        found.append(Cluster(first.fingerprint, first, tuple(members)))
    return sorted(found, key=lambda one: -len(one.cells))


def _over_exporters(groups: Iterable[list[Record]]) -> list[list[Record]]:
    """Joins what exporters raised at one source line: each has classes and words of its own for it, few an operator."""
    joined: list[list[Record]] = []
    at_line: dict[tuple[str, ...], list[list[Record]]] = {}
    for members in groups:
        line = _raised_at(members[0])
        known = at_line.setdefault(line, []) if line else []
        same = next((one for one in known if _may_be_one(one, members)), None)
        if same is not None:
            same.extend(members)
        else:
            joined.append(list(members))
            known.append(joined[-1])
    return joined


def _raised_at(record: Record) -> tuple[str, ...]:
    """Verdict, stage and source line of what was raised; empty where no line is known, and for symptoms."""
    found = diagnostic(record)
    if not found.source or found.stage in _SYMPTOMS:
        return ()
    return (record.verdict, found.stage, stable_source(found.source))


def _may_be_one(known: list[Record], other: list[Record]) -> bool:
    """Whether two groups of one line failed in exporters that they do not share, and at no two operators."""
    operators = {diagnostic(record).operator for record in (*known, *other)} - {""}
    return {record.cell.exporter for record in known}.isdisjoint(record.cell.exporter for record in other) and len(
        operators
    ) < 2
