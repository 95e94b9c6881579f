"""Eager runs that differ: how far that raises a tolerance, and the sentence that says so.

Arrives: facts of runs. Leaves: a factor, a tolerance or a sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.tolerances import Tolerance
from batch_export.record import Record, RunFacts

NOISE_FACTOR = 2.0
"""A model whose two eager runs differ by `noise` gets an `atol` of at least this many times the noise."""

RANDOM_FACTOR = 8.0
"""That factor where the file draws random numbers as eager does: two draws of the same distribution are further apart
than this many times the largest difference of a dozen runs once in a million times, even if all elements hang on one
draw.
"""


def noise_factor(record: Record) -> float:
    """How many times eager's own noise an output may be off."""
    return RANDOM_FACTOR if record.extra.get("random_operators") else NOISE_FACTOR


def raised_tolerance(output: OutputFacts, tolerance: Tolerance, factor: float = NOISE_FACTOR) -> Tolerance:
    """Returns the tolerance, its `atol` raised to some times the noise where eager differs from itself."""
    return replace(tolerance, atol=max(tolerance.atol, factor * output.noise))


def noise_sentence(runs: Sequence[RunFacts], factor: float) -> str:
    """Says which outputs of eager differ from run to run; empty where none does."""
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
