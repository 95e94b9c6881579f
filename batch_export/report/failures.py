"""Unexpected cells that share their cause, gathered into one entry. Records in, entries out; nothing is printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from batch_export.record import AXES, NUMERIC, Cell, Record
from batch_export.report.clusters import clusters
from batch_export.report.next_steps import command, questions
from batch_export.report.since import Since, earliest
from batch_export.words import one_line

_MOST_NAMES = 8
"""Models that a title names."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Cells that share a defect.

    Attributes:
        title: the cells in short, e.g. `bert_tiny full,static opset 18,20 cpu`.
        kind: the stage and class, e.g. `mismatch ValueMismatch`.
        cause: one line.
        log: where the log of the first of them is; may be empty.
        cells: all of them; what is found out about one stands for all.
        next: the command line that says more about the first of them; empty when there is none.
        new: how many of the cells are new failures against the base.
        since: since when, after how many good runs, and what changed; empty when no history says.
    """

    verdict: str
    title: str
    kind: str
    cause: str
    log: str
    cells: tuple[Cell, ...]
    next: str = ""
    new: int = 0
    since: str = ""

    @property
    def news(self) -> str:
        """`new`, or `2 new of` where others were there before; empty where none is new."""
        if not self.new:
            return ""
        return "new" if self.new == len(self.cells) else f"{self.new} new of"


def group_failures(
    records: Iterable[Record],
    *,
    name_exporter: bool = False,
    marks: Mapping[Cell, str] | None = None,
    since: Mapping[Cell, Since] | None = None,
) -> list[FailureGroup]:
    """Words for `clusters.clusters`, in its order (the cause of most cells first), but causes with new failures first.

    Args:
        records: of which those that did not end as expected are gathered.
        name_exporter: whether titles name the exporters.
        marks: what a comparison says of cells (`Comparison.marks`).
        since: since when cells fail.
    """
    groups = [_group(cluster.records, name_exporter, marks or {}, since or {}) for cluster in clusters(records)]
    return sorted(groups, key=lambda group: not group.new)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _among(axis: str, cells: Sequence[Cell]) -> str:
    """The values that cells have on an axis."""
    values = dict.fromkeys(getattr(cell, axis) for cell in cells)
    return f"{axis} {','.join(map(str, sorted(values)))}" if axis in NUMERIC else ",".join(values)


def _group(
    members: Sequence[Record], name_exporter: bool, marks: Mapping[Cell, str], since: Mapping[Cell, Since]
) -> FailureGroup:
    first = members[0]
    cells = tuple(record.cell for record in members)
    models = list(dict.fromkeys(cell.model for cell in cells))
    parts = [
        models[0] if len(models) == 1 else f"{len(cells)} cells, {len(models)} models: {_listed(models)}",
        *(_among(axis, cells) for axis in AXES if axis != "model" and (axis != "exporter" or name_exporter)),
    ]
    kind = one_line(f"{first.stage} {first.error_class}")
    oldest = earliest(since[cell] for cell in cells if cell in since)
    return FailureGroup(
        verdict=first.verdict,
        title=one_line(" ".join(parts)),
        kind=kind or first.verdict,
        cause=one_line(first.message),
        log=one_line(next((record.log for record in members if record.log), "")),
        cells=cells,
        since=oldest.sentence() if oldest is not None else "",
        new=sum(marks.get(cell) == "new" for cell in cells),
        next=next((text for verb in questions(first) if (text := command(verb, first.cell)).isprintable()), ""),
    )
