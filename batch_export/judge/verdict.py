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

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from batch_export.findings.diagnostic import OTHERWISE
from batch_export.judge import oracle_need
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.rounding import lies_below
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES, EXACT, Tolerance, default_tolerance, tolerance_at
from batch_export.record import Record, RunFacts, holds_for
from batch_export.spec import Expectation, ModelSpec
from batch_export.steps import MAKES

NOISE_FACTOR = 2.0
"""A model whose two eager runs differ by `noise` gets an `atol` of at least this many times the noise."""

RANDOM_FACTOR = 8.0
"""That factor where the file draws random numbers as eager does: two draws of the same distribution are further apart
than this many times the largest difference of a dozen runs once in a million times, even if all elements hang on one
draw.
"""

ROUNDING_FACTOR = 2.0
"""A file may be this many times as far from eager in float64 as eager itself is: another order of summation."""

_OWN_EXTRA = ("reason", "link", "nondeterministic", "float64")
_KINDS = (
    "NothingFinite",
    "FrozenRandomness",
    "NumericMismatch",
    "ValueMismatch",
    "NonFiniteMismatch",
    "ShapeMismatch",
    "DtypeMismatch",
    "MissingOutput",
)
"""Classes of the stage `mismatch`, the gravest last."""
CANCELLED_SHARE = 0.01
"""Of the value at which eager's rounding is largest: below that, a value says little about the terms it came from."""

_FROM_FLOAT64 = "eager vs float64"
_DECIDED_ELSEWHERE = ("skip", "missing")
_MISSING_DTYPE = "missing"


@dataclass(frozen=True, slots=True)
class _Problem:
    stage: str
    error_class: str
    message: str


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
    factor = _noise_factor(record)
    noise = _noise_sentence(record.runs, factor)
    if noise:
        extra["nondeterministic"] = noise
    outputs = [output for run in _shown(record.runs, tolerance_of, factor) for output in run.outputs]
    record = replace(
        record,
        max_abs=max((output.max_abs for output in outputs if output.max_abs is not None), default=None),
        max_rel=max((output.max_rel for output in outputs if output.max_rel is not None), default=None),
        by_distribution=_is_random(record.runs, tolerance_of, factor),
    )
    declared = [expectation for expectation in expectations if expectation.matches(record.cell)]
    in_float64 = _float64_sentence(record, model, tolerances)
    if in_float64:
        extra["float64"] = in_float64
    problem = _first_problem(record, tolerance_of, _builds_agree(record))
    problem = _not_reproducible(record, model, problem) or problem
    if problem is None and not model.allow_nonfinite:
        problem = _nothing_finite(record.runs)
    if problem is not None and _wants_float64(problem, model):
        problem = replace(problem, message=f"{problem.message}; eager in float64: {in_float64}")
    said = "; ".join(filter(None, (noise, holds_for(record))))
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


def _failed(record: Record, problem: _Problem, declared: Sequence[Expectation], extra: dict[str, Any]) -> Record:
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


def _builds_agree(record: Record) -> bool:
    """Whether the steps that built the model all built the same one, as far as facts say: older ones do not."""
    return not record.extra.get("unlike_reference")


def _not_reproducible(record: Record, model: ModelSpec, problem: _Problem | None) -> _Problem | None:
    """Returns the problem of a builder that made different models, which no comparison of values can be trusted with.

    Other tensors are always one. Other plain values (a date, a number of a process) are where outputs differ.
    """
    unlike: Mapping[str, Sequence[str]] = record.extra.get("unlike_reference", {})
    differ = problem is not None and problem.stage == "mismatch"
    steps = [step for step, kinds in unlike.items() if "tensors" in kinds or differ]
    if not steps or (problem is not None and not differ):
        return None
    what = "weights" if any("tensors" in unlike[step] for step in steps) else "attributes"
    made = " and ".join(MAKES.get(step, step) for step in steps)
    message = (
        f"the builder {model.target} is not reproducible: {made} had other {what} than the model of eager's values. "
        "Next step: seed it (the generators of torch, NumPy and random are seeded before it runs; the clock, "
        "os.urandom and uuid are not)"
    )
    return _Problem("model", "NotReproducible", message)


def _first_problem(record: Record, tolerance_of: Mapping[str, Tolerance], excused: bool) -> _Problem | None:
    """Returns the first problem; `excused` says whether float64 may excuse rounding."""
    if record.failure is not None:
        return _Problem(record.failure.stage, record.failure.error_class, record.failure.message)
    if record.findings:
        first, others = record.findings[0], len(record.findings) - 1
        more = f" (and {others} more finding{'s' if others > 1 else ''})" if others else ""
        return _Problem(first.stage, first.error_class, first.message + more)
    if not any(run.outputs for run in record.runs):
        refusal = next(_refusals(record.runs), None)
        return refusal or _Problem("run", "NothingCompared", "no output was compared with eager; nothing is known")
    runs = record.runs if excused else [_without_oracle(run) for run in record.runs]
    refusal = next(_refusals(record.runs), None)
    worst = refusal or _worst_mismatch(runs, tolerance_of, _noise_factor(record))
    return _frozen(record) or worst if worst is None or worst.error_class == "NumericMismatch" else worst


def _noise_factor(record: Record) -> float:
    return RANDOM_FACTOR if record.extra.get("random_operators") else NOISE_FACTOR


def _frozen(record: Record) -> _Problem | None:
    """Returns the problem of a file that always computes the same, of a model that does not."""
    if record.extra.get("random_operators") != []:
        return None
    changed = record.extra.get("changed_attributes", ())
    cause = f"forward changes {', '.join(changed)}" if changed else "forward draws or counts outside torch"
    message = (
        f"two runs of the model differ, and the file has no operator that draws random numbers: {cause}, and what it "
        "was during the export is frozen in the file. Next step: make it a buffer or an input, or draw with torch"
    )
    return _Problem("mismatch", "FrozenRandomness", message)


def _without_oracle(run: RunFacts) -> RunFacts:
    return replace(run, outputs=tuple(replace(output, has_oracle=False) for output in run.outputs))


def failing_run(record: Record, model: ModelSpec, tolerances: Mapping[str, Tolerance]) -> RunFacts | None:
    """Returns the run that shows a record's failure best: the first that was refused, else the gravest mismatch."""
    tolerance_of = {**DEFAULT_TOLERANCES, **tolerances, **model.tolerances}
    refused = next((run for run in record.runs if run.error), None)
    if refused is not None:
        return refused
    factor = _noise_factor(record)
    wrong = [run for run in record.runs if _worst_mismatch([run], tolerance_of, factor) is not None]
    return wrong[0] if wrong else None


def _refusals(runs: Sequence[RunFacts]) -> Iterator[_Problem]:
    for run in runs:
        if run.error:
            yield _Problem("dynamic", "SizeRefused", f"the runtime refuses {_sizes(run)}: {run.error}")
    for run in runs:
        if run.rejected:
            message = f"the model itself rejects {_sizes(run)}: {run.rejected}; change axes.*.check"
            yield _Problem("dynamic", "ModelGuard", message)
    for run in runs:
        if not (run.outputs or run.error or run.rejected):
            yield _Problem("run", "NothingCompared", f"no output was compared with eager at {_sizes(run)}")


def _worst_mismatch(runs: Sequence[RunFacts], tolerance_of: Mapping[str, Tolerance], factor: float) -> _Problem | None:
    """Returns the gravest mismatch: by kind first (see `_KINDS`), numeric ones by how far they exceed the tolerance."""
    worst: tuple[tuple[int, float], _Problem] | None = None
    for run in runs:
        for position, output in enumerate(run.outputs):
            found = _mismatch(output, tolerance_at(tolerance_of.get(output.expected_dtype, EXACT), run.variant), factor)
            if found is None:
                continue
            excess, error_class, what = found
            gravity = (_KINDS.index(error_class), excess)
            problem = _Problem("mismatch", error_class, f"output {position} ({output.name}): {what} at {_sizes(run)}")
            if worst is None or gravity > worst[0]:
                worst = (gravity, problem)
    return worst[1] if worst else None


def _mismatch(output: OutputFacts, tolerance: Tolerance, factor: float) -> tuple[float, str, str] | None:
    """Returns how far past the tolerance an output is, the class of the mismatch and what to say; None if it agrees."""
    if output.actual_dtype == _MISSING_DTYPE:
        return 0.0, "MissingOutput", "the file has no such output"
    if output.actual_dtype != output.expected_dtype:
        return 0.0, "DtypeMismatch", f"is {output.actual_dtype}, eager's is {output.expected_dtype}"
    if output.actual_shape != output.expected_shape:
        return (
            0.0,
            "ShapeMismatch",
            f"has shape {list(output.actual_shape)}, eager's has {list(output.expected_shape)}",
        )
    if output.non_finite_mismatches:
        what = f"{output.non_finite_mismatches} of {output.count} elements are NaN or infinite on one side only"
        return 0.0, "NonFiniteMismatch", what
    if output.max_abs is None and output.unequal and not output.hull:
        return 0.0, "ValueMismatch", f"{output.unequal} of {output.count} elements differ"
    is_rough = output.expected_dtype in oracle_need.LOW_PRECISION
    if output.has_oracle and is_rough and _judged_by_oracle(output, tolerance):
        return None
    raised = raised_tolerance(output, tolerance, factor)
    size, error = max(output.hull, key=lambda point: point[1] - raised.rtol * point[0], default=(0.0, 0.0))
    allowed = raised.atol + raised.rtol * size
    if error <= allowed or (output.has_oracle and _only_rounding(output)):
        return None
    what = (
        f"error {error:.3g} at |ref| {size:.3g} exceeds atol {raised.atol:.3g} + rtol {raised.rtol:.3g};"
        f" {_how_many(output, raised)}"
    )
    if output.worst_values is not None and output.worst_index is not None:
        what += f"; worst at {list(output.worst_index)}: {output.worst_values[1]}, eager's {output.worst_values[0]}"
    if output.has_oracle:
        what += f"; {_beside_float64(output)}"
    if output.noise:
        what += f"; eager differs from itself by {output.noise:.3g}"
    return error / max(allowed, sys.float_info.min), "NumericMismatch", what


def _how_many(output: OutputFacts, judged_by: Tolerance) -> str:
    """Says how many elements are wrong; the facts count by the dtype's default, which is named where another judged."""
    default = default_tolerance(output.expected_dtype)
    if not output.outside:
        return f"{output.unequal} of {output.count} elements differ"
    beyond = f"{output.outside} of {output.count} elements beyond"
    return beyond if judged_by == default else f"{beyond} the default {default.atol:.3g} + {default.rtol:.3g}"


def _nothing_finite(runs: Sequence[RunFacts]) -> _Problem | None:
    """Returns the problem of an output that has elements, and at no input a finite one: NaN agrees with any NaN.

    Where eager or the file alone is finite, that is a mismatch; integers, booleans and texts are always finite.
    """
    proven: dict[tuple[int, str], bool] = {}
    elements: dict[tuple[int, str], int] = {}
    for run in runs:
        for position, output in enumerate(run.outputs):
            here = (position, output.name)
            finite = output.max_abs is not None or output.expected_dtype == "str"
            proven[here] = proven.get(here, False) or finite
            elements[here] = elements.get(here, 0) + output.count
    for (position, name), is_proven in proven.items():
        count = elements[position, name]
        if count and not is_proven:
            message = (
                f"output {position} ({name}): none of its {count} elements is finite at any input, in eager as in the "
                "file, so that their agreement proves nothing. Next step: correct the model or its inputs, or write "
                "'allow_nonfinite: true' in its config if that is meant"
            )
            return _Problem("mismatch", "NothingFinite", message)
    return None


def _is_random(runs: Sequence[RunFacts], tolerance_of: Mapping[str, Tolerance], factor: float) -> bool:
    """Returns whether some output was judged by a tolerance that eager's noise had raised."""
    return any(
        raised_tolerance(output, tolerance, factor) != tolerance
        for run in runs
        for output in run.outputs
        for tolerance in (tolerance_at(tolerance_of.get(output.expected_dtype, EXACT), run.variant),)
    )


def _only_rounding(output: OutputFacts) -> bool:
    """Returns whether the file is about as near to float64 as eager is, at every size of the values.

    A value that is small because larger ones cancelled keeps their rounding, in whichever order they are added up, and
    eager may be lucky there: the smallest values are judged like those of `CANCELLED_SHARE`.
    """
    smallest = CANCELLED_SHARE * (output.rounding_hull[-1][0] if output.rounding_hull else 0.0)
    raised = [(max(size, smallest), error) for size, error in output.oracle_hull]
    return lies_below(raised, output.rounding_hull, ROUNDING_FACTOR)


def _judged_by_oracle(output: OutputFacts, tolerance: Tolerance) -> bool:
    """Returns whether a low-precision output agrees with float64, or is no rougher than eager."""
    within = all(error <= tolerance.atol + tolerance.rtol * size for size, error in output.oracle_hull)
    return within or _only_rounding(output)


def _beside_float64(output: OutputFacts) -> str:
    return (
        f"onnx vs eager {output.max_abs or 0.0:.3g}, {_FROM_FLOAT64} {_highest(output.rounding_hull):.3g}, "
        f"onnx vs float64 {_highest(output.oracle_hull):.3g}"
    )


def _wants_float64(problem: _Problem, model: ModelSpec) -> bool:
    """Whether a mismatch was found without float64, though the run did not switch that off."""
    said = _FROM_FLOAT64 in problem.message
    return problem.error_class == "NumericMismatch" and not said and model.oracle != oracle_need.NEVER


def _shown(runs: Sequence[RunFacts], tolerance_of: Mapping[str, Tolerance], factor: float) -> Iterator[RunFacts]:
    """Yields the runs whose errors a cell shows: those with `large` values only where they are too large, since they
    grow with the values and would hide the others.
    """
    for run in runs:
        if run.variant != "large" or _worst_mismatch([run], tolerance_of, factor) is not None:
            yield run


def _float64_sentence(record: Record, model: ModelSpec, tolerances: Mapping[str, Tolerance]) -> str:
    """Says what eager in float64 shows about a cell, or why it was not asked; empty where nothing was compared."""
    runs = [run for run in record.runs if run.outputs]
    beside = [(output, run) for run in runs for output in run.outputs if output.has_oracle]
    if beside:
        output, run = max(beside, key=lambda pair: pair[0].max_abs or 0.0)
        asked = sum(any(output.has_oracle for output in run.outputs) for run in runs)
        return f"asked at {asked} of {len(runs)} inputs; {output.name} at {_sizes(run)}: {_beside_float64(output)}"
    tolerance_of = {**DEFAULT_TOLERANCES, **tolerances, **model.tolerances}
    shares = list(oracle_need.shares_used(runs, tolerance_of))
    if not shares:
        return ""
    if model.oracle == oracle_need.NEVER:
        return "not asked (verify.oracle=never)"
    if record.extra.get("no_oracle"):
        return f"none: {record.extra['no_oracle']}"
    if max(shares) <= oracle_need.DOUBTFUL_SHARE:
        return f"not needed: no error uses more than {max(shares):.2g} of its tolerance"
    if any(output.noise for run in runs for output in run.outputs):
        return "none: eager is not deterministic"
    return "not asked: no error is near its dtype's default tolerance; verify.oracle=always asks"


def _highest(hull: Sequence[tuple[float, float]]) -> float:
    return hull[-1][1] if hull else 0.0


def raised_tolerance(output: OutputFacts, tolerance: Tolerance, factor: float = NOISE_FACTOR) -> Tolerance:
    """Returns the tolerance, its `atol` raised to some times the noise where eager differs from itself."""
    return replace(tolerance, atol=max(tolerance.atol, factor * output.noise))


def _noise_sentence(runs: Sequence[RunFacts], factor: float) -> str:
    noisy: dict[str, float] = {}
    for run in runs:
        for output in run.outputs:
            if output.noise:
                noisy[output.name] = max(noisy.get(output.name, 0.0), output.noise)
    if not noisy:
        return ""
    listed = ", ".join(f"{name} by {noise:.3g}" for name, noise in noisy.items())
    times = "twice" if factor == NOISE_FACTOR else f"{factor:.0f} times"
    return f"eager is not deterministic ({listed}); judged with atol of at least {times} that"


def _sizes(run: RunFacts) -> str:
    sizes = ", ".join(f"{axis}={size}" for axis, size in run.sizes.items()) or "the example sizes"
    return f"{sizes} with {run.variant} inputs" if run.variant else sizes
