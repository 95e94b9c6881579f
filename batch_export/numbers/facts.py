"""How one output compares with another: frozen plain data, enough to judge it by any tolerance later."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """How one output of one run compares with eager.

    Attributes:
        name: the ONNX output's name.
        expected_dtype, actual_dtype: numpy names (`float32`, `bfloat16`, ...).
        expected_shape, actual_shape: sizes.
        hull: upper hull of the points `(|expected|, |error|)` over elements that are finite on both sides, by rising
            `|expected|`: enough to judge `|error| <= atol + rtol * |expected|` for any tolerance.
        max_abs: largest `|error|`, None when dtype or shape differ or nothing is finite.
        max_rel: largest `|error| / max(|expected|, smallest normal of the dtype)`, None likewise.
        non_finite_mismatches: elements that are NaN or Inf (sign included) on one side only.
        unequal: elements that differ at all (for integers, booleans and strings: exactly).
        count: elements compared.
        worst_index: index of the element with the largest `|error|`.
        noise: largest `|difference|` between two eager runs; above zero means that eager is not deterministic.
        worst_values: eager's value and the file's at `worst_index`, as text (JSON has no NaN).
        decades: how many elements have an error of 10^d to 10^(d+1), as `(d, count)` by rising d; equal ones in none.
        max_ulp: largest distance in units in the last place, for floating-point dtypes that differ somewhere.
        outside: elements beyond the default tolerance of their dtype, non-finite mismatches included.
        rounding_hull: as `hull`, of eager against eager in float64: ordinary rounding. Empty without an oracle.
        oracle_hull: as `hull`, of the file against eager in float64.
        has_oracle: whether eager ran in float64 for this output.
    """

    name: str
    expected_dtype: str
    actual_dtype: str
    expected_shape: tuple[int, ...]
    actual_shape: tuple[int, ...]
    hull: tuple[tuple[float, float], ...] = ()
    max_abs: float | None = None
    max_rel: float | None = None
    non_finite_mismatches: int = 0
    unequal: int = 0
    count: int = 0
    worst_index: tuple[int, ...] | None = None
    noise: float = 0.0
    worst_values: tuple[str, str] | None = None
    decades: tuple[tuple[int, int], ...] = ()
    max_ulp: float | None = None
    outside: int = 0
    rounding_hull: tuple[tuple[float, float], ...] = ()
    oracle_hull: tuple[tuple[float, float], ...] = ()
    has_oracle: bool = False
