"""What eager in float64 says of an output: whether a difference is rounding only, and the sentences about it.

Arrives: facts of outputs that were also compared with eager in float64, where that was asked. Leaves: answers and
sentences. Whether it is asked at all is decided in `oracle_need.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from batch_export.axes import Case
from batch_export.judge import oracle_need
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.rounding import lies_below
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES, Tolerance
from batch_export.record import Record, RunFacts
from batch_export.spec import ModelSpec

ROUNDING_FACTOR = 2.0
"""A file may be this many times as far from eager in float64 as eager itself is: another order of summation."""

CANCELLED_SHARE = 0.01
"""Of the value at which eager's rounding is largest: below that, a value says little about the terms it came from."""

FROM_FLOAT64 = "eager vs float64"
"""Stands in every sentence that names eager's own rounding."""


def only_rounding(output: OutputFacts) -> bool:
    """Returns whether the file is about as near to float64 as eager is, at every size of the values."""
    return is_no_rougher(output.oracle_hull, output.rounding_hull)


def is_no_rougher(hull: Sequence[tuple[float, float]], beside: Sequence[tuple[float, float]]) -> bool:
    """Returns whether one computation is about as near to float64 as another, by the hulls of their errors.

    A value that is small because larger ones cancelled keeps their rounding, in whichever order they are added up, and
    the other may be lucky there: the smallest values are judged like those of `CANCELLED_SHARE`.
    """
    smallest = CANCELLED_SHARE * (beside[-1][0] if beside else 0.0)
    raised = [(max(size, smallest), error) for size, error in hull]
    return lies_below(raised, beside, ROUNDING_FACTOR)


def agrees_with_float64(output: OutputFacts, tolerance: Tolerance) -> bool:
    """Returns whether a low-precision output agrees with float64, or is no rougher than eager."""
    within = all(error <= tolerance.atol + tolerance.rtol * size for size, error in output.oracle_hull)
    return within or only_rounding(output)


def beside_float64(output: OutputFacts) -> str:
    """The three distances between the file, eager and eager in float64."""
    return (
        f"onnx vs eager {output.max_abs or 0.0:.3g}, {FROM_FLOAT64} {_highest(output.rounding_hull):.3g}, "
        f"onnx vs float64 {_highest(output.oracle_hull):.3g}"
    )


def float64_sentence(record: Record, model: ModelSpec, tolerances: Mapping[str, Tolerance]) -> str:
    """Says what eager in float64 shows about a cell, or why it was not asked; empty where nothing was compared."""
    runs = [run for run in record.runs if run.outputs]
    beside = [(output, run) for run in runs for output in run.outputs if output.has_oracle]
    if beside:
        output, run = max(beside, key=lambda pair: pair[0].max_abs or 0.0)
        asked = sum(any(output.has_oracle for output in run.outputs) for run in runs)
        return f"asked at {asked} of {len(runs)} inputs; {output.name} at {sizes_of(run)}: {beside_float64(output)}"
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


def sizes_of(run: RunFacts) -> str:
    """The sizes and the kind of inputs of a run, in words."""
    return Case(run.sizes, run.variant).text
