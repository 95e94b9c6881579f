"""Where runtimes disagree about one file: who is alone, by a vote of the runtimes, eager, and eager in float64.

Judged records of cells that share a file arrive, a `Disagreement` leaves. Eager has a voice as each runtime has. Two
runtimes that both differ from eager vote together when they differ at the same element, and from each other by little
beside that; where the voices are even, the value nearest to float64 has it. Nothing is run or read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from batch_export.record import Record

EAGER = "eager"
_NEAR_SHARE = 0.1
"""Two that differ from eager agree when what is between them is at most this share of their error."""
_AGREEING = ("pass", "flaky", "xpass")
_REFUSING_STAGES = ("load", "run", "dynamic", "crash", "timeout", "memory")

_Key = tuple[tuple[tuple[str, int], ...], str, int]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What runtimes make of one file, where they do not all make the same of it.

    Attributes:
        file: `model/dynamic/opset20/exporter`.
        agree: providers whose outputs agree with eager's.
        differ: providers whose outputs do not, those that agree with each other together.
        refuse: providers that do not run the file.
        alone: who the others are against: providers, `eager`, or nobody where the vote says nothing.
        says: the sentence.
    """

    file: str
    agree: tuple[str, ...]
    differ: tuple[tuple[str, ...], ...]
    refuse: tuple[str, ...]
    alone: tuple[str, ...]
    says: str


def disagreement(records: Sequence[Record]) -> Disagreement | None:
    """Returns what a vote says about a file.

    Args:
        records: of the cells that share it, one a provider; those that were skipped have no voice.
    """
    heard = [record for record in records if record.verdict not in ("skip", "missing")]
    agree = [record.cell.provider for record in heard if record.verdict in _AGREEING]
    wrong = [record for record in heard if record.verdict not in _AGREEING and record.stage == "mismatch"]
    refuse = [
        record.cell.provider for record in heard if record.verdict not in _AGREEING and record.stage in _REFUSING_STAGES
    ]
    if len(agree) + len(wrong) + len(refuse) < 2 or not ((wrong and len(heard) > 1) or (refuse and agree)):
        return None
    groups = _groups(wrong)
    names = tuple(tuple(record.cell.provider for record in group) for group in groups)
    alone, says = _counted(agree, groups, refuse)
    return Disagreement(heard[0].cell.file, tuple(agree), names, tuple(refuse), alone, says)


def _counted(
    agree: Sequence[str], groups: Sequence[Sequence[Record]], refuse: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    refused = f"; {_list(refuse)} {_verb(refuse, 'refuses', 'refuse')} the file" if refuse else ""
    if not groups:
        who = "alone " if len(refuse) == 1 else ""
        verb = _verb(refuse, "refuses", "refuse")
        return tuple(refuse), f"{_list(refuse)} {who}{verb} the file, {_list(agree)} {_verb(agree, 'runs', 'run')} it"
    with_eager = [*agree, EAGER]
    largest = max(groups, key=len)
    others = [record.cell.provider for group in groups for record in group]
    against = [record.cell.provider for record in largest]
    if len(largest) > len(with_eager):
        kept = f" with {_list(agree)}" if agree else ""
        return (EAGER,), f"eager is alone{kept}: {_list(against)} agree with each other{refused}"
    if len(largest) < len(with_eager):
        is_alone = f"{_list(others)} {_verb(others, 'is', 'are')} alone"
        return tuple(others), f"{is_alone}: {_list(with_eager)} agree{refused}"
    nearer = _nearer_to_float64(largest)
    if nearer is None:
        voices = f"{_list(against)} on one side, {_list(with_eager)} on the other"
        return (), f"the voices are even: {voices}{refused}"
    if nearer:
        return (EAGER,), f"eager is alone: {_list(against)} {_verb(against, 'is', 'are')} nearer to float64{refused}"
    return tuple(others), f"{_list(others)} {_verb(others, 'is', 'are')} alone: eager is nearer to float64{refused}"


def _groups(wrong: Sequence[Record]) -> list[list[Record]]:
    groups: list[list[Record]] = []
    for record in wrong:
        group = next((group for group in groups if _agree(group[0], record)), None)
        if group is None:
            groups.append([record])
        else:
            group.append(record)
    return groups


def _agree(one: Record, other: Record) -> bool:
    """Whether two that differ from eager have the same values where they differ most, at every run."""
    mine, yours = _worst(one), _worst(other)
    shared = mine.keys() & yours.keys()
    for key in shared:
        (place, value, error), (its_place, its_value, its_error) = mine[key], yours[key]
        small = max(error, its_error)
        if place != its_place or not abs(value - its_value) <= _NEAR_SHARE * small:
            return False
    return bool(shared)


def _worst(record: Record) -> dict[_Key, tuple[tuple[int, ...], float, float]]:
    """Of each output of each run that differs from eager: where it does most, the value there, and the error."""
    found: dict[_Key, tuple[tuple[int, ...], float, float]] = {}
    for run in record.runs:
        for position, output in enumerate(run.outputs):
            if output.worst_index is None or output.worst_values is None or not output.outside:
                continue
            try:
                value = float(output.worst_values[1])
            except ValueError:
                continue
            if math.isfinite(value) and output.max_abs is not None:
                key = (tuple(sorted(run.sizes.items())), run.variant, position)
                found[key] = (output.worst_index, value, output.max_abs)
    return found


def _nearer_to_float64(group: Sequence[Record]) -> bool | None:
    """Whether the runtimes are nearer to float64 than eager; None where float64 was not asked."""
    outputs = [
        output
        for record in group
        for run in record.runs
        for output in run.outputs
        if output.has_oracle and output.outside
    ]
    if not outputs:
        return None
    theirs = max((error for output in outputs for _, error in output.oracle_hull), default=0.0)
    eagers = max((error for output in outputs for _, error in output.rounding_hull), default=0.0)
    return theirs < eagers


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _verb(names: Sequence[str], one: str, several: str) -> str:
    return one if len(names) == 1 else several
