"""Several runs as one: the shards of a sweep, put together as if one machine had run them all.

Stored runs with their records arrive; what the merged run was asked, its cells and its records leave. Nothing is read,
written or judged here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from pathlib import Path

from batch_export.errors import UsageError
from batch_export.nouns import counted
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Record
from batch_export.report.asked_alike import difference, unknown
from batch_export.report.made_alike import joined, other_commits, unlike
from batch_export.report.run_folder import StoredRun
from batch_export.report.summary import Counts
from batch_export.runner.surroundings import Surroundings
from batch_export.spec import RunSpec

_SHOWN = 3
"""Names that a sentence tells."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the runs: its folder, what it was asked for, its records, and what it was made with, if it says so."""

    folder: Path
    run: StoredRun
    records: tuple[Record, ...]
    made: Surroundings | None = None


@dataclass(frozen=True, slots=True)
class Merged:
    """What the parts come to."""

    spec: RunSpec
    cells: tuple[PlannedCell, ...]
    records: tuple[Record, ...]
    command: str
    doubts: tuple[str, ...] = ()
    """What could not be made sure, a sentence each."""
    made: Surroundings | None = None
    """What they were made with; None where one of them does not say so."""


def merged(parts: Sequence[Part], output_path: Path, *, partial: bool = False, mixed: bool = False) -> Merged:
    """Returns the run that the parts make up.

    Args:
        parts: at least one; no cell may be in two of them.
        output_path: the merged run's folder.
        partial: takes them even where one of their shards is missing.
        mixed: takes them even where they were made with different versions or sources.

    Raises:
        UsageError: the parts were asked for different things, were cut from different lists of models, were made with
            different versions or sources, have a cell in common, or lack a shard or cells of their own.
    """
    first = parts[0]
    doubts = _unlike_wholes(parts)
    missing = [] if partial else _missing_shards(parts)
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
    if missing:
        raise UsageError(
            f"The {'shards' if len(missing) > 1 else 'shard'} {', '.join(missing)} of this sweep "
            f"{'are' if len(missing) > 1 else 'is'} in none of these runs. Next step: name the run of each shard, "
            "or say --partial"
        )
    if not partial:
        for part in parts:
            _refuse_cut(part)
    doubts = (*doubts, *_unlike_environments(parts), *_made_unlike(parts, mixed=mixed))
    spec = first.run.spec
    models = tuple({model.name: model for part in parts for model in part.run.spec.matrix.models}.values())
    names = tuple(dict.fromkeys(name for part in parts for name in part.run.spec.matrix.words["model"]))
    chosen = () if len(names) == len(models) else names
    whole = replace(
        spec,
        matrix=replace(spec.matrix, models=models, chosen=chosen),
        runner=replace(spec.runner, shard=""),
        output_path=str(output_path),
        overrides=tuple(word for word in spec.overrides if not _is_shard(word)),
    )
    command = shlex.join(word for word in shlex.split(first.run.command) if not _is_shard(word))
    cells = tuple(cell for part in parts for cell in part.run.cells())
    records = tuple(record for part in parts for record in part.records)
    known = [part.made for part in parts if part.made is not None]
    return Merged(whole, cells, records, command, doubts, joined(known) if len(known) == len(parts) else None)


def added(counts: Iterable[Counts]) -> Counts:
    """Returns what several runs took and did together: seconds and actions of all of them."""
    each = tuple(counts)
    return Counts(
        wall_s=sum(one.wall_s for one in each),
        ran=sum(one.ran for one in each),
        cached=sum(one.cached for one in each),
        rerun_failures=sum(one.rerun_failures for one in each),
        interrupted=any(one.interrupted for one in each),
    )


def _missing_shards(parts: Sequence[Part]) -> list[str]:
    """The shards that belong to those of the parts and are none of them, such as `2/8`."""
    given = {part.run.spec.runner.shard for part in parts} - {""}
    totals = sorted({int(shard.partition("/")[2]) for shard in given})
    return [f"{index}/{total}" for total in totals for index in range(1, total + 1) if f"{index}/{total}" not in given]


def _unlike_wholes(parts: Sequence[Part]) -> tuple[str, ...]:
    """Returns which shards do not say what they were cut from.

    Raises:
        UsageError: some were cut from another list of models than others: cells of both lists would be in none of them.
    """
    doubts: list[str] = []
    cut_into: dict[str, Part] = {}
    for part in parts:
        spec = part.run.spec
        if not spec.runner.shard:
            continue
        if not spec.matrix.chosen:
            doubts.append(
                f"{part.folder} does not say which list of models it is a shard of (an older version made it); whether "
                "all shards are of one list is not checked"
            )
            continue
        other = cut_into.setdefault(spec.runner.shard.partition("/")[2], part)
        if other.run.spec.matrix.chosen != spec.matrix.chosen:
            raise UsageError(
                f"{other.folder} and {part.folder} are shards of different lists of models: "
                f"{_unlike_names(other.run.spec.matrix.chosen, spec.matrix.chosen)}. Next step: run the shards again "
                "with the same matrix.models, configs and sample"
            )
    return tuple(doubts)


def _unlike_environments(parts: Sequence[Part]) -> tuple[str, ...]:
    """Returns which of several runs do not say what `matrix.env` was."""
    if len(parts) == 1:
        return ()
    return tuple(
        f"{part.folder} does not say which requirements matrix.env gave its models (an older version made it); whether "
        "all runs are of the same is not checked"
        for part in parts
        if unknown(part.run.spec)
    )


def _made_unlike(parts: Sequence[Part], *, mixed: bool) -> tuple[str, ...]:
    """Returns which of several runs do not say what they were made with, and which may be of different sources.

    Raises:
        UsageError: two were made with different versions or sources, and that is not meant.
    """
    if len(parts) == 1:
        return ()
    doubts = [
        f"{part.folder} does not say what it was made with (it has no environment.json that this version reads); "
        "whether all runs are of the same versions and sources is not checked"
        for part in parts
        if part.made is None
    ]
    known = [(part.folder, part.made) for part in parts if part.made is not None]
    for (one, first), (other, second) in combinations(known, 2):
        if found := unlike(first, second):
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            sentence = f"{one} and {other} were made with different things: {'; '.join(found[:_SHOWN])}{more}"
            if not mixed:
                raise UsageError(
                    f"{sentence}. Next step: run the shards again with the same versions and sources, or say --mixed"
                )
            doubts.append(sentence)
        elif commits := other_commits(first, second):
            doubts.append(
                f"The models of {one} and {other} are of different commits ({' and '.join(commits)}); of their sources "
                "only those that both runs used were compared"
            )
    return tuple(doubts)


def _unlike_names(one: Sequence[str], other: Sequence[str]) -> str:
    only = [name for name in one if name not in set(other)], [name for name in other if name not in set(one)]
    told = [
        f"only {'the second' if second else 'the first'} has {', '.join(names[:_SHOWN])}"
        + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        for second, names in enumerate(only)
        if names
    ]
    return "; ".join(told) or "they have another order"


def _refuse_cut(part: Part) -> None:
    """Refuses a run that left out cells of its own matrix.

    Raises:
        UsageError: it is one, such as a run with `--last-failed`.
    """
    matrix = part.run.spec.matrix
    count = len(matrix.models) * prod(len(words) for axis, words in matrix.words.items() if axis != "model")
    if len(part.run.planned) < count:
        raise UsageError(
            f"{part.folder} has {len(part.run.planned)} of the {counted(count, 'cell')} of its matrix, as a run with "
            "--last-failed does. Next step: name the run before it, or say --partial"
        )


def _is_shard(word: str) -> bool:
    return word.lstrip("+").startswith("runner.shard=")


def _refuse_other(first: Part, part: Part) -> None:
    if found := difference(first.run.spec, part.run.spec):
        raise UsageError(
            f"{first.folder} and {part.folder} were asked for different things: {found} differs. "
            "Next step: merge shards of one sweep, which differ in runner.shard only"
        )
