"""How one output compares with eager's, as facts for any tolerance.

Two values arrive; `OutputFacts` leave. Shapes are never broadcast and dtypes never reconciled: a difference is reported
and the numbers are then not compared. The one exception: eager's complex numbers are compared with the file's
`float[..., 2]`, and the facts then name the real dtype for both. NaN equals NaN, an infinity equals the same infinity.
Integers are compared exactly, without wrapping round. No verdict is given here; the only tolerance known is the default
one, for the count of elements beyond it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from batch_export.numbers.facts import OutputFacts
from batch_export.numbers.hull import Floats, Point, widen_hull
from batch_export.numbers.tolerances import default_tolerance
from batch_export.numbers.ulp import ulp_distance
from batch_export.numbers.values import Array, RawTensor, Value, dtype_name, smallest_normal, widened

_CHUNK = 1 << 16
"""Elements compared at once: large enough for numpy, small enough for the processor's cache."""
_LARGEST = float(np.finfo(np.float64).max)
"""In place of infinity, which JSON lacks: finite float64 can be further apart than float64 reaches."""


def compare(name: str, expected: Value, actual: Value, noise: float = 0.0) -> OutputFacts:
    """Compares an output with its reference value.

    Args:
        name: the output's name in the file.
        expected: eager's value.
        actual: the runtime's value.
        noise: largest difference between two eager runs, stored with the facts.
    """
    if dtype_name(expected).startswith("complex"):
        expected = _as_pairs(expected)
        if dtype_name(actual).startswith("complex"):
            actual = _as_pairs(actual)
    facts = OutputFacts(
        name=name,
        expected_dtype=dtype_name(expected),
        actual_dtype=dtype_name(actual),
        expected_shape=tuple(expected.shape),
        actual_shape=tuple(actual.shape),
        noise=noise,
    )
    if facts.expected_dtype != facts.actual_dtype or facts.expected_shape != facts.actual_shape:
        return facts
    tally = _Tally(facts.expected_dtype)
    expected_flat, actual_flat = _flat(expected), _flat(actual)
    for start in range(0, len(expected_flat), _CHUNK):
        tally.add(start, expected_flat[start : start + _CHUNK], actual_flat[start : start + _CHUNK])
    return tally.facts(facts)


def _as_pairs(value: Value) -> Array:
    flat = np.ascontiguousarray(widened(value)).reshape(-1)
    return flat.view(flat.real.dtype).reshape(*value.shape, 2)


def _flat(value: Value) -> Array:
    bits = value.bits if isinstance(value, RawTensor) else value
    flat = np.ascontiguousarray(bits).reshape(-1)
    return widened(RawTensor(value.dtype, flat)) if isinstance(value, RawTensor) else flat


class _Tally:
    """What is known after the chunks seen so far."""

    def __init__(self, dtype: str) -> None:
        self._text = dtype == "str"
        self._dtype = dtype
        self._smallest = smallest_normal(dtype)
        self._tolerance = default_tolerance(dtype)
        self._hull: list[Point] = []
        self._max_abs: float | None = None
        self._max_rel = 0.0
        self._worst = 0
        self._worst_values: tuple[str, str] | None = None
        self._decades: dict[int, int] = {}
        self._max_ulp: float | None = None
        self._outside = 0
        self._non_finite = 0
        self._unequal = 0
        self._count = 0

    def add(self, start: int, expected: Array, actual: Array) -> None:
        """Takes in one chunk; `start` is the flat index of its first element."""
        self._count += len(expected)
        different = expected != actual
        if expected.dtype.kind == "f":
            different &= ~(np.isnan(expected) & np.isnan(actual))
        unequal = int(np.count_nonzero(different))
        self._unequal += unequal
        if self._text:
            self._outside += unequal
            return
        finite = np.isfinite(expected) & np.isfinite(actual) if expected.dtype.kind == "f" else None
        if unequal == 0:
            if self._max_abs is None and (finite is None or finite.any()):
                self._max_abs = 0.0
            return
        if finite is not None and not finite.all():
            self._add_non_finite(start, different & ~finite, expected, actual)
            if not finite.any():
                return
            where = np.flatnonzero(finite)
            expected, actual = expected[where], actual[where]
        else:
            where = None
        error, size = _errors(expected, actual)
        worst = int(error.argmax())
        if self._max_abs is None or error[worst] > self._max_abs:
            self._max_abs = float(error[worst])
            self._worst = start + (worst if where is None else int(where[worst]))
            self._worst_values = (str(expected[worst]), str(actual[worst])) if self._max_abs else self._worst_values
        self._outside += int(np.count_nonzero(error > self._tolerance.atol + self._tolerance.rtol * size))
        self._count_decades(error)
        distance = ulp_distance(self._dtype, expected, actual)
        if distance is not None:
            self._max_ulp = max(self._max_ulp or 0.0, distance)
        with np.errstate(over="ignore"):
            relative = float((error / np.maximum(size, self._smallest)).max())
        self._max_rel = max(self._max_rel, min(relative, _LARGEST))
        self._hull = widen_hull(self._hull, size, error)

    def _add_non_finite(self, start: int, mismatch: Array, expected: Array, actual: Array) -> None:
        """Counts elements that are NaN or infinite on one side only; the first is the worst while no other is known."""
        count = int(np.count_nonzero(mismatch))
        self._non_finite += count
        self._outside += count
        if count and self._worst_values is None:
            first = int(mismatch.argmax())
            self._worst = start + first
            self._worst_values = (str(expected[first]), str(actual[first]))

    def _count_decades(self, error: Floats) -> None:
        powers = np.floor(np.log10(error[error > 0])).astype(np.int64)
        for power, count in zip(*np.unique(powers, return_counts=True), strict=True):
            self._decades[int(power)] = self._decades.get(int(power), 0) + int(count)

    def facts(self, facts: OutputFacts) -> OutputFacts:
        """Completes the facts."""
        worst = None
        if self._worst_values is not None:
            worst = tuple(int(index) for index in np.unravel_index(self._worst, facts.expected_shape))
        return replace(
            facts,
            hull=tuple(self._hull),
            max_abs=self._max_abs,
            max_rel=self._max_rel if self._max_abs is not None else None,
            non_finite_mismatches=self._non_finite,
            unequal=self._unequal,
            count=self._count,
            worst_index=worst,
            worst_values=self._worst_values,
            decades=tuple(sorted(self._decades.items())),
            max_ulp=self._max_ulp,
            outside=self._outside,
        )


def _errors(expected: Array, actual: Array) -> tuple[Floats, Floats]:
    """Returns `|actual - expected|` and `|expected|` of finite elements, as float64."""
    if expected.dtype.kind == "f":
        wide = expected.astype(np.float64)
        with np.errstate(over="ignore"):
            error = np.minimum(np.abs(actual.astype(np.float64) - wide), _LARGEST)
        return error, np.abs(wide)
    if expected.dtype.kind == "u" and expected.dtype.itemsize == 8:
        low, high = np.minimum(expected, actual), np.maximum(expected, actual)
        return (high - low).astype(np.float64), expected.astype(np.float64)
    # In two's complement the difference of two int64 is right as a uint64, whatever its size.
    low = np.minimum(expected, actual).astype(np.int64).view(np.uint64)
    high = np.maximum(expected, actual).astype(np.int64).view(np.uint64)
    return (high - low).astype(np.float64), np.abs(expected.astype(np.float64))
