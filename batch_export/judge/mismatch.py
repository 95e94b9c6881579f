"""One output beside eager's: the kind of mismatch, how grave it is and what to say; and the gravest of several runs.

Arrives: facts of outputs and the tolerance of each dtype. Leaves: a `Problem`, or None where all agree.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batch_export.judge import oracle_need
from batch_export.judge.float64 import agrees_with_float64, beside_float64, only_rounding, sizes_of
from batch_export.judge.noise import raised_tolerance
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import EXACT, Tolerance, default_tolerance, tolerance_at
from batch_export.record import RunFacts

KINDS = (
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
_MISSING_DTYPE = "missing"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a cell: where, of which class, and in words."""

    stage: str
    error_class: str
    message: str


def worst_mismatch(runs: Sequence[RunFacts], tolerance_of: Mapping[str, Tolerance], factor: float) -> Problem | None:
    """Returns the gravest mismatch: by kind first (see `KINDS`), numeric ones by how far they exceed the tolerance."""
    worst: tuple[tuple[int, float], Problem] | None = None
    for run in runs:
        for position, output in enumerate(run.outputs):
            found = _mismatch(output, tolerance_at(tolerance_of.get(output.expected_dtype, EXACT), run.variant), factor)
            if found is None:
                continue
            excess, error_class, what = found
            gravity = (KINDS.index(error_class), excess)
            problem = Problem("mismatch", error_class, f"output {position} ({output.name}): {what} at {sizes_of(run)}")
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
    if output.has_oracle and is_rough and agrees_with_float64(output, tolerance):
        return None
    raised = raised_tolerance(output, tolerance, factor)
    size, error = max(output.hull, key=lambda point: point[1] - raised.rtol * point[0], default=(0.0, 0.0))
    allowed = raised.atol + raised.rtol * size
    if error <= allowed or (output.has_oracle and only_rounding(output)):
        return None
    what = (
        f"error {error:.3g} at |ref| {size:.3g} exceeds atol {raised.atol:.3g} + rtol {raised.rtol:.3g};"
        f" {_how_many(output, raised)}"
    )
    if output.worst_values is not None and output.worst_index is not None:
        what += f"; worst at {list(output.worst_index)}: {output.worst_values[1]}, eager's {output.worst_values[0]}"
    if output.has_oracle:
        what += f"; {beside_float64(output)}"
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


def is_random(runs: Sequence[RunFacts], tolerance_of: Mapping[str, Tolerance], factor: float) -> bool:
    """Returns whether some output was judged by a tolerance that eager's noise had raised."""
    return any(
        raised_tolerance(output, tolerance, factor) != tolerance
        for run in runs
        for output in run.outputs
        for tolerance in (tolerance_at(tolerance_of.get(output.expected_dtype, EXACT), run.variant),)
    )
