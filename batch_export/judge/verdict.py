"""From facts to a verdict: what the outcome of a cell is, given tolerances and expectations.

A record with facts, its model's spec, the run's tolerances and expectations arrive; the same record leaves with
`verdict`, `stage`, `error_class`, `message`, `max_abs` and `max_rel` filled in. A pure function: it runs nothing and
reads no file, so a changed tolerance or expectation is a new verdict over old facts, and judging twice changes
nothing.

The first problem found is the cell's: its failure; then findings about the file; a run that the runtime refused, or the
model itself; then outputs that do not agree; then outputs without one finite value. A cell of which nothing was
compared never passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from batch_export.findings.diagnostic import OTHERWISE
from batch_export.judge import oracle_need
from batch_export.judge.float64 import FROM_FLOAT64, float64_sentence
from batch_export.judge.mismatch import Problem, is_random, worst_mismatch
from batch_export.judge.noise import noise_factor, noise_sentence
from batch_export.judge.problems import (
    SIZES_REFUSED,
    builds_agree,
    first_problem,
    not_reproducible,
    nothing_finite,
    with_what_the_exporter_changed,
)
from batch_export.judge.untried import untried_axes
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES, Tolerance
from batch_export.record import Record, RunFacts, holds_for, untried_sizes
from batch_export.spec import Expectation, ModelSpec

_OWN_EXTRA = ("reason", "link", "nondeterministic", "float64", "untried_axes")
_DECIDED_ELSEWHERE = ("skip", "missing")


def judge(
    record: Record,
    model: ModelSpec,
    tolerances: Mapping[str, Tolerance],
    expectations: Sequence[Expectation],
) -> Record:
    """Returns the record with its verdict.

    Args:
        record: facts of one cell; one that is `skip` or `missing` stays so.
        model: the cell's model, whose own tolerances come before the run's.
        tolerances: the run's, by dtype name.
        expectations: cells declared to fail; a cell that matches one and passes is `xpass`.
    """
    extra = {name: value for name, value in record.extra.items() if name not in _OWN_EXTRA}
    if record.verdict in _DECIDED_ELSEWHERE:
        return replace(record, extra=extra)
    tolerance_of = {**DEFAULT_TOLERANCES, **tolerances, **model.tolerances}
    factor = noise_factor(record)
    noise = noise_sentence(record.runs, factor)
    if noise:
        extra["nondeterministic"] = noise
    outputs = [output for run in _shown(record.runs, tolerance_of, factor) for output in run.outputs]
    record = replace(
        record,
        max_abs=max((output.max_abs for output in outputs if output.max_abs is not None), default=None),
        max_rel=max((output.max_rel for output in outputs if output.max_rel is not None), default=None),
        by_distribution=is_random(record.runs, tolerance_of, factor),
        by_ties=any(run.ties for run in record.runs),
    )
    declared = [expectation for expectation in expectations if expectation.matches(record.cell)]
    in_float64 = float64_sentence(record, model, tolerances)
    if in_float64:
        extra["float64"] = in_float64
    problem = first_problem(record, tolerance_of, builds_agree(record))
    problem = not_reproducible(record, model, problem) or problem
    if problem is None and not model.allow_nonfinite:
        problem = nothing_finite(record.runs)
    if problem is not None and in_float64 and _wants_float64(problem, model):
        problem = replace(problem, message=f"{problem.message}; eager in float64: {in_float64}")
    problem = problem and with_what_the_exporter_changed(record, problem)
    untried = untried_axes(record, model)
    if untried:
        extra["untried_axes"] = untried
    said = "; ".join(filter(None, (noise, holds_for(record), untried_sizes(replace(record, extra=extra)))))
    if problem is not None and untried and problem.error_class in SIZES_REFUSED:
        problem = replace(problem, message=f"{problem.message}; {untried_sizes(replace(record, extra=extra))}")
    if problem is None and record.attempts:
        return _flaky(record, said, extra)
    if problem is None:
        return _passed(record, declared, said, extra)
    return _failed(record, problem, declared, extra)


def _passed(record: Record, declared: Sequence[Expectation], said: str, extra: dict[str, Any]) -> Record:
    if not declared:
        return replace(record, verdict="pass", stage="", error_class="", message=said, extra=extra)
    reason = declared[0].reason
    message = f"passes, though it was expected to fail ({reason}); remove the expectation"
    extra = {**extra, **_reason(declared[0])}
    return replace(record, verdict="xpass", stage="", error_class="", message=message, extra=extra)


def _flaky(record: Record, said: str, extra: dict[str, Any]) -> Record:
    """A cell that passed, but not at once, is no pass: what failed before is its stage and class."""
    last = record.attempts[-1]
    times = "once" if len(record.attempts) == 1 else f"{len(record.attempts)} times"
    message = f"passes, but failed {times} before: {last.message}" + (f"; {said}" if said else "")
    return replace(
        record, verdict="flaky", stage=last.stage, error_class=last.error_class, message=message, extra=extra
    )


def _failed(record: Record, problem: Problem, declared: Sequence[Expectation], extra: dict[str, Any]) -> Record:
    stage, error_class, message = problem.stage, problem.error_class, problem.message
    for expectation in declared:
        if fnmatchcase(stage, expectation.stage) and fnmatchcase(error_class, expectation.error_class):
            extra = {**extra, **_reason(expectation)}
            return replace(record, verdict="xfail", stage=stage, error_class=error_class, message=message, extra=extra)
    if declared:
        expected = declared[0]
        message += f"{OTHERWISE}stage {expected.stage}, class {expected.error_class}: {expected.reason})"
    return replace(record, verdict="fail", stage=stage, error_class=error_class, message=message, extra=extra)


def _reason(expectation: Expectation) -> dict[str, str]:
    link = {"link": expectation.link} if expectation.link else {}
    return {"reason": expectation.reason, **link}


def failing_run(record: Record, model: ModelSpec, tolerances: Mapping[str, Tolerance]) -> RunFacts | None:
    """Returns the run that shows a record's failure best: the first that was refused, else the gravest mismatch."""
    tolerance_of = {**DEFAULT_TOLERANCES, **tolerances, **model.tolerances}
    refused = next((run for run in record.runs if run.error), None)
    if refused is not None:
        return refused
    factor = noise_factor(record)
    wrong = [run for run in record.runs if worst_mismatch([run], tolerance_of, factor) is not None]
    return wrong[0] if wrong else None


def _wants_float64(problem: Problem, model: ModelSpec) -> bool:
    """Whether a mismatch was found without float64, though the run did not switch that off."""
    said = FROM_FLOAT64 in problem.message
    return problem.error_class == "NumericMismatch" and not said and model.oracle != oracle_need.NEVER


def _shown(runs: Sequence[RunFacts], tolerance_of: Mapping[str, Tolerance], factor: float) -> Iterator[RunFacts]:
    """Yields the runs whose errors a cell shows: those with `large` values only where they are too large, since they
    grow with the values and would hide the others.
    """
    for run in runs:
        if run.variant != "large" or worst_mismatch([run], tolerance_of, factor) is not None:
            yield run
