"""Whether a value is what it should be, by the tolerance of its dtype. Facts of a comparison arrive."""

from __future__ import annotations

from batch_export.errors import VerificationError
from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import DEFAULT_TOLERANCES, default_tolerance


def require_one(facts: OutputFacts) -> None:
    """Raises if a value is not what it should be.

    Raises:
        VerificationError: naming the value and the size of the error.
    """
    where = f"output {facts.name}"
    if facts.expected_dtype != facts.actual_dtype:
        raise VerificationError(f"{where} is {facts.actual_dtype} and should be {facts.expected_dtype}")
    if facts.expected_shape != facts.actual_shape:
        raise VerificationError(f"{where} has the shape {facts.actual_shape} and should have {facts.expected_shape}")
    if facts.non_finite_mismatches:
        raise VerificationError(f"{where} has {facts.non_finite_mismatches} NaN or Inf elements on one side only")
    if proves_nothing(facts):
        raise VerificationError(
            f"{where}: none of its {facts.count} elements is finite, in the model as in the file, so that their "
            "agreement proves nothing",
            next_step="correct the model, or give example inputs at which it is finite",
        )
    allowed = default_tolerance(facts.expected_dtype)
    worst = max((error - allowed.atol - allowed.rtol * size for size, error in facts.hull), default=-1.0)
    if worst > 0 or (facts.expected_dtype not in DEFAULT_TOLERANCES and facts.unequal and not facts.hull):
        raise VerificationError(
            f"{where} differs by {facts.max_abs} from the model's "
            f"(allowed: {allowed.atol} + {allowed.rtol} * |expected|)",
            next_step="`localise` of batch_export.exporter.diagnostics.localise names the first wrong node",
        )


def proves_nothing(facts: OutputFacts) -> bool:
    """Whether a value has the shape and dtype that it should have, and no finite number on either side."""
    alike = facts.expected_shape == facts.actual_shape and facts.expected_dtype == facts.actual_dtype
    return bool(
        alike
        and not facts.non_finite_mismatches
        and facts.count
        and facts.max_abs is None
        and facts.expected_dtype != "str"
    )
