"""What is wrong with a cell: the first problem that its facts show.

Arrives: a record with facts, and the tolerances. Leaves: a `Problem`, or None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from batch_export.judge.beyond_guards import broken
from batch_export.judge.float64 import sizes_of
from batch_export.judge.mismatch import Problem, worst_mismatch
from batch_export.judge.noise import noise_factor
from batch_export.numbers.tolerances import Tolerance
from batch_export.record import Record, RunFacts
from batch_export.spec import ModelSpec
from batch_export.steps import MAKES

SIZES_REFUSED = ("SizeRefused", "ModelGuard")
"""Classes of problems that kept sizes from being compared."""

_NAMES = 3
_KINDS = {"modes": "training mode"}
"""What a sentence calls what an exporter changed, where the record's word for it is not that of a sentence."""


def first_problem(record: Record, tolerance_of: Mapping[str, Tolerance], excused: bool) -> Problem | None:
    """Returns the first problem; `excused` says whether float64 may excuse rounding."""
    if record.failure is not None:
        cause = f"; what was found in the file before: {_found(record)}" if record.findings else ""
        return Problem(record.failure.stage, record.failure.error_class, record.failure.message + cause)
    if record.findings:
        first = record.findings[0]
        return Problem(first.stage, first.error_class, _found(record))
    if not any(run.outputs for run in record.runs):
        refusal = next(_refusals(record.runs), None)
        return refusal or Problem("run", "NothingCompared", "no output was compared with eager; nothing is known")
    runs = record.runs if excused else [_without_oracle(run) for run in record.runs]
    refusal = next(_refusals(record.runs), None)
    worst = refusal or _worst(record, runs, tolerance_of)
    return _frozen(record) or worst if worst is None or worst.error_class == "NumericMismatch" else worst


def _worst(record: Record, runs: Sequence[RunFacts], tolerance_of: Mapping[str, Tolerance]) -> Problem | None:
    """Returns the gravest mismatch where the file is said to hold; else one that a guard of its capture tells."""
    factor, guards = noise_factor(record), record.extra.get("guards", ())
    beyond = {id(run): guard for run in runs if guards and (guard := broken(guards, run.sizes))}
    worst = worst_mismatch([run for run in runs if id(run) not in beyond], tolerance_of, factor)
    for run in runs if worst is None else ():
        if id(run) in beyond and (found := worst_mismatch([run], tolerance_of, factor)) is not None:
            message = (
                f"the file holds only while `{beyond[id(run)]}`, as its capture says: {found.message}. Next step: "
                "change the model where it asks for that size, or take the size out of axes.*.check"
            )
            return Problem("dynamic", "BeyondGuard", message)
    return worst


def _found(record: Record) -> str:
    others = len(record.findings) - 1
    more = f" (and {others} more finding{'s' if others > 1 else ''})" if others else ""
    return record.findings[0].message + more


def builds_agree(record: Record) -> bool:
    """Whether the steps that built the model all built the same one, as far as facts say: older ones do not."""
    return not record.extra.get("unlike_reference")


def not_reproducible(record: Record, model: ModelSpec, problem: Problem | None) -> Problem | None:
    """Returns the problem of a builder that made different models, which no comparison of values can be trusted with.

    Other tensors are always one. Other plain values (a date, a number of a process), and other values that the model
    computes, are where outputs differ.
    """
    unlike: Mapping[str, Sequence[str]] = record.extra.get("unlike_reference", {})
    differ = problem is not None and problem.stage == "mismatch"
    steps = [step for step, kinds in unlike.items() if "tensors" in kinds or differ]
    if not steps or (problem is not None and not differ):
        return None
    kinds = {kind for step in steps for kind in unlike[step]}
    what = "weights" if "tensors" in kinds else "attributes" if "constants" in kinds else "values to compute with"
    made = " and ".join(MAKES.get(step, step) for step in steps)
    message = (
        f"the builder {model.target} is not reproducible: {made} had other {what} than the model of eager's values. "
        "Next step: seed it (the generators of torch, NumPy and random are seeded before it runs; the clock, "
        "os.urandom and uuid are not); if what it reads was changed while the run went on, run again"
    )
    return Problem("model", "NotReproducible", message)


def with_what_the_exporter_changed(record: Record, problem: Problem) -> Problem:
    """Returns the problem; of a file that differs from eager, with what its exporter changed while it had the model."""
    changed: Mapping[str, Sequence[str]] = record.extra.get("changed_by_exporter", {})
    if problem.stage != "mismatch" or not changed:
        return problem
    of_torch = changed.get("process", ())
    of_model = [_some(kind, names) for kind, names in changed.items() if kind != "process"]
    what = [f"the model that it was given ({'; '.join(of_model)})"] if of_model else []
    what += [f"functions of its process ({_named(of_torch)})"] if of_torch else []
    step = "work on a copy (copy.deepcopy)" if of_model else "put them back before the model is traced"
    message = (
        f"{problem.message}; the exporter {record.cell.exporter!r} changed {' and '.join(what)}, so that the file may "
        f"be of another model than eager's values. Next step: let the exporter {step}"
    )
    return Problem(problem.stage, problem.error_class, message)


def _some(kind: str, names: Sequence[str]) -> str:
    return f"{_KINDS.get(kind, kind)}: {_named(names)}"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {more} more" if more > 0 else "")


def _frozen(record: Record) -> Problem | None:
    """Returns the problem of a file that always computes the same, of a model that does not."""
    if record.extra.get("random_operators") != []:
        return None
    changed = record.extra.get("changed_attributes", ())
    cause = f"forward changes {', '.join(changed)}" if changed else "forward draws or counts outside torch"
    message = (
        f"two runs of the model differ, and the file has no operator that draws random numbers: {cause}, and what it "
        "was during the export is frozen in the file. Next step: make it a buffer or an input, or draw with torch"
    )
    return Problem("mismatch", "FrozenRandomness", message)


def _without_oracle(run: RunFacts) -> RunFacts:
    return replace(run, outputs=tuple(replace(output, has_oracle=False) for output in run.outputs))


def _refusals(runs: Sequence[RunFacts]) -> Iterator[Problem]:
    for run in runs:
        if run.error:
            yield Problem("dynamic", "SizeRefused", f"the runtime refuses {sizes_of(run)}: {run.error}")
    for run in runs:
        if run.rejected:
            message = f"the model itself rejects {sizes_of(run)}: {run.rejected}; change axes.*.check"
            yield Problem("dynamic", "ModelGuard", message)
    for run in runs:
        if not (run.outputs or run.error or run.rejected):
            yield Problem("run", "NothingCompared", f"no output was compared with eager at {sizes_of(run)}")


def nothing_finite(runs: Sequence[RunFacts]) -> Problem | None:
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
            return Problem("mismatch", "NothingFinite", message)
    return None
