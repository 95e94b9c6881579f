"""The tolerances that hold where neither a model nor a run says anything, in sweeps and `export(verify=True)` alike.

Plain values; nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

LARGE_SCALE = 100.0
"""Standard deviation of the values of `large`, in place of 1; absolute tolerances are as many times wider there."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|actual - expected| <= atol + rtol * |expected|` must hold for every element."""

    atol: float
    rtol: float


EXACT = Tolerance(atol=0.0, rtol=0.0)
"""For integers, booleans, text and every dtype that is not listed."""

DEFAULT_TOLERANCES: Mapping[str, Tolerance] = {
    "float64": Tolerance(1e-9, 1e-7),
    "float32": Tolerance(1e-4, 1e-3),
    "float16": Tolerance(5e-3, 1e-2),
    "bfloat16": Tolerance(3e-2, 5e-2),
    "float8_e4m3fn": Tolerance(0.125, 0.125),
    "float8_e4m3fnuz": Tolerance(0.125, 0.125),
    "float8_e5m2": Tolerance(0.25, 0.25),
    "float8_e5m2fnuz": Tolerance(0.25, 0.25),
}
"""By dtype name of the expected value; complex numbers are compared as pairs of floats, and judged by those.

They leave room for another order of summation and for kernels that round more coarsely than eager's, not for a wrong
operator. float8: one unit in the last place, an eighth (three bits of mantissa) or a quarter (two) of the value.
"""


def default_tolerance(dtype: str) -> Tolerance:
    """Returns the tolerance of a dtype."""
    return DEFAULT_TOLERANCES.get(dtype, EXACT)


def tolerance_at(tolerance: Tolerance, variant: str) -> Tolerance:
    """Returns the tolerance for a variant: values a hundred times as large are rounded a hundred times as coarsely."""
    return replace(tolerance, atol=tolerance.atol * LARGE_SCALE) if variant == "large" else tolerance
