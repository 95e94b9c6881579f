"""Several runs as one: the shards of a sweep, put together as if one machine had run them all.

Stored runs with their records arrive; what the merged run was asked, its cells and its records leave. Nothing is read,
written or judged here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from batch_export.errors import UsageError
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Record
from batch_export.report.run_folder import StoredRun
from batch_export.spec import MatrixSpec, RunSpec

_MAY_DIFFER = ("matrix", "runner", "store_path", "store", "output_path", "overrides", "baseline")
"""Fields of a run that say where and how it ran, or are compared one by one."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the runs: its folder, what it was asked for, and its records."""

    folder: Path
    run: StoredRun
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Merged:
    """What the parts come to."""

    spec: RunSpec
    cells: tuple[PlannedCell, ...]
    records: tuple[Record, ...]


def merged(parts: Sequence[Part], output_path: Path) -> Merged:
    """Returns the run that the parts make up.

    Args:
        parts: at least one; no cell may be in two of them.
        output_path: the merged run's folder.

    Raises:
        UsageError: the parts were asked for different things, or have a cell in common.
    """
    first = parts[0]
    owners: dict[Cell, Path] = {}
    for part in parts:
        _refuse_other(first, part)
        for planned in part.run.planned:
            if planned.cell in owners:
                raise UsageError(
                    f"The cell {planned.cell.name} is in {owners[planned.cell]} and in {part.folder}. "
                    "Next step: merge runs of different shards"
                )
            owners[planned.cell] = part.folder
    spec = first.run.spec
    models = tuple({model.name: model for part in parts for model in part.run.spec.matrix.models}.values())
    whole = replace(
        spec,
        matrix=replace(spec.matrix, models=models),
        runner=replace(spec.runner, shard=""),
        output_path=str(output_path),
    )
    cells = tuple(cell for part in parts for cell in part.run.cells())
    return Merged(whole, cells, tuple(record for part in parts for record in part.records))


def _refuse_other(first: Part, part: Part) -> None:
    asked = ((first.run.spec, part.run.spec, RunSpec), (first.run.spec.matrix, part.run.spec.matrix, MatrixSpec))
    for one, other, kind in asked:
        for item in fields(kind):
            name = item.name
            if name in _MAY_DIFFER or name == "models" or getattr(one, name) == getattr(other, name):
                continue
            raise UsageError(
                f"{first.folder} and {part.folder} were asked for different things: '{name}' differs. "
                "Next step: merge shards of one sweep, which differ in runner.shard only"
            )
