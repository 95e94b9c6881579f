"""Where a cell needs eager in float64 beside eager and the file: before the file has run, and after.

A model's spec and facts arrive; positions in `axes.cases` leave. Float64 excuses rounding and never condemns, so with
`verify.oracle=auto` it is asked for where rounding may be the question: for outputs of low precision, and where an
error uses more than a stated share of its dtype's default tolerance. The tolerances of a run or a model say nothing
here: who changes them has the same facts judged anew, and nothing runs. Nothing is run, judged or looked up here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from batch_export import axes
from batch_export.axes import Case
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES, EXACT, Tolerance, tolerance_at
from batch_export.record import RunFacts
from batch_export.spec import ModelSpec

AUTO = "auto"
ALWAYS = "always"
NEVER = "never"
WORDS = (AUTO, ALWAYS, NEVER)
"""What `verify.oracle` may be."""

DOUBTFUL_SHARE = 0.5
"""An error that uses more than this share of the default tolerance is looked at beside float64."""

LOW_PRECISION = ("float16", "bfloat16")
"""Dtypes whose eager values are themselves too rough to judge by."""
_JUDGED = ("float32", *LOW_PRECISION)


def beforehand(model: ModelSpec, facts: Mapping[str, Any], cases: Sequence[int]) -> tuple[int, ...]:
    """Returns the cases that need it whatever the file computes.

    Args:
        model: whose `oracle` decides.
        facts: of its Reference.
        cases: the setting's.
    """
    if model.oracle == NEVER:
        return ()
    rough = any(output["dtype"] in LOW_PRECISION for output in facts["outputs"])
    return tuple(
        index
        for index in cases
        if _usable(facts["cases"][index])
        and (rough or (model.oracle == ALWAYS and (index == 0 or facts["cases"][index].get("variant") == "large")))
    )


def doubtful(
    model: ModelSpec,
    facts: Mapping[str, Any],
    cases: Sequence[int],
    ran: Mapping[str, Any],
) -> tuple[int, ...]:
    """Returns the cases, of those without it, whose errors are too large to go unexplained.

    Args:
        model: whose `oracle` decides.
        facts: of its Reference.
        cases: the setting's.
        ran: facts of the file's Run.
    """
    if model.oracle != AUTO:
        return ()
    try:
        runs = msgspec.convert(ran.get("runs", ()), tuple[RunFacts, ...])
    except msgspec.ValidationError:
        return ()  # what is no fact of a run is told when the record is made
    known = {case.identity: index for index, case in enumerate(axes.cases(model))}
    kinds = [output["dtype"] for output in facts["outputs"]]
    found: list[int] = []
    for run in runs:
        index = known.get(Case(run.sizes, run.variant).identity)
        if index is None or index not in cases or not _usable(facts["cases"][index]):
            continue
        outputs = [one for one, kind in zip(run.outputs, kinds, strict=False) if kind in _JUDGED]
        if any(
            share > DOUBTFUL_SHARE
            for output in outputs
            if not output.has_oracle
            for share in shares_used([RunFacts(run.sizes, (output,), variant=run.variant)], DEFAULT_TOLERANCES)
        ):
            found.append(index)
    return tuple(found)


def shares_used(runs: Sequence[RunFacts], tolerance_of: Mapping[str, Tolerance]) -> Iterator[float]:
    """Yields for every output that was compared as numbers how much of its tolerance its errors use: 1 is all of it."""
    for run in runs:
        for output in run.outputs:
            if output.max_abs is not None and output.expected_dtype in DEFAULT_TOLERANCES:
                yield _share(output, tolerance_at(tolerance_of.get(output.expected_dtype, EXACT), run.variant))


def _share(output: OutputFacts, tolerance: Tolerance) -> float:
    # `error > share * (atol + rtol * size)` is linear in both, so the hull's corners decide for every share.
    allowed = ((error, tolerance.atol + tolerance.rtol * size) for size, error in output.hull)
    return max((error / max(most, sys.float_info.min) for error, most in allowed), default=0.0)


def _usable(case: Mapping[str, Any]) -> bool:
    """Whether eager has values there that are the same each time."""
    return not case["rejected"] and not any(case["noise"])
