"""Distances in units in the last place. Two arrays of finite numbers arrive; the largest distance leaves.

The bits of an IEEE number, read as a sign and an integer, count the numbers of its format in order; the distance is the
difference of two such counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batch_export.numbers.values import Array

_FORMATS: dict[str, tuple[Any, int]] = {
    "float16": (np.uint16, 0),
    "float32": (np.uint32, 0),
    "float64": (np.uint64, 0),
    "bfloat16": (np.uint32, 16),
}
"""dtype -> the integer of the width that its values are held in, and the bits that a wider holder adds."""


def ulp_distance(dtype: str, expected: Array, actual: Array) -> float | None:
    """Returns the largest distance, or None for dtypes without such a count (integers, float8).

    Args:
        dtype: the name of the values' own dtype.
        expected, actual: finite; bfloat16 widened to float32.
    """
    found = _FORMATS.get(dtype)
    if found is None or not len(expected):
        return None
    holder, extra_bits = found
    one, other = _counts(expected, holder), _counts(actual, holder)
    if holder is np.uint64:
        # Counts are below 2^63 in size, so the difference of two fits in 64 bits without a sign.
        low, high = np.minimum(one, other), np.maximum(one, other)
        return float((high.view(np.uint64) - low.view(np.uint64)).max())
    return float(np.abs(one - other).max() >> extra_bits)


def _counts(values: Array, holder: Any) -> NDArray[np.int64]:
    bits = np.ascontiguousarray(values).view(holder)
    sign_bit = holder(1 << (8 * bits.dtype.itemsize - 1))
    size = (bits & ~sign_bit).astype(np.int64)
    counts: NDArray[np.int64] = np.where(bits & sign_bit, -size, size)
    return counts
