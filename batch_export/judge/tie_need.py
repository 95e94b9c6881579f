"""Where a cell needs to know whether ties explain a difference: facts of a run arrive, positions in `axes.cases` leave.

What is chosen among equal scores (by a router of experts, by the top-k of a detector) is arbitrary, so that a file
may rightly differ from eager. It is asked only where values differ by more than the default tolerances, shapes and
dtypes agree, and the file selects at all. The tolerances of a run or a model say nothing here, as in `oracle_need`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from batch_export import axes
from batch_export.judge.mismatch import worst_mismatch
from batch_export.judge.noise import NOISE_FACTOR
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES
from batch_export.record import RunFacts
from batch_export.spec import ModelSpec

SELECTING = ("TopK", "ArgMax", "ArgMin")
"""Operators of a file whose indices are choices."""
_EXPLAINED = ("NumericMismatch", "ValueMismatch")


def unexplained(
    model: ModelSpec,
    facts: Mapping[str, Any],
    cases: Sequence[int],
    checked: Mapping[str, Any],
    ran: Sequence[Mapping[str, Any]],
) -> tuple[int, ...]:
    """Returns the cases whose differences ties might explain.

    Args:
        model: whose cases they are.
        facts: of its Reference.
        cases: the setting's.
        checked: facts of the file's Check.
        ran: facts of its Runs; where two are of one case, the later one counts.
    """
    if not any(name in checked.get("operators", ()) for name in SELECTING):
        return ()
    known = {case.identity: index for index, case in enumerate(axes.cases(model))}
    found: dict[int, bool] = {}
    for each in ran:
        try:
            runs = msgspec.convert(each.get("runs", ()), tuple[RunFacts, ...])
        except msgspec.ValidationError:
            continue  # what is no fact of a run is told when the record is made
        for run in runs:
            index = known.get(axes.Case(run.sizes, run.variant).identity)
            if index is not None and index in cases and not any(facts["cases"][index]["noise"]):
                problem = worst_mismatch([run], DEFAULT_TOLERANCES, NOISE_FACTOR)
                found[index] = problem is not None and problem.error_class in _EXPLAINED
    return tuple(index for index in cases if found.get(index))
