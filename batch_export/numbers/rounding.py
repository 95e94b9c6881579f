"""Compares two clouds of errors by their upper hulls. Plain numbers in, a truth value out; numpy is not needed.

The hulls are those that `runtime.hull` gathers: points `(|expected|, |error|)` that rise in both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

Point = tuple[float, float]


def lies_below(lower: Sequence[Point], upper: Sequence[Point], factor: float) -> bool:
    """Returns whether every tolerance that holds for `upper` holds, `factor` times as wide, for `lower`.

    It is enough to look at the vertices of `lower`: each must lie on or below the upper hull raised by the factor,
    which is taken as level left of its first vertex and right of its last.
    """
    if not lower:
        return True
    if not upper:
        return False
    return all(y <= factor * _height(upper, x) for x, y in lower)


def _height(hull: Sequence[Point], x: float) -> float:
    after = bisect_right(hull, x, key=lambda point: point[0])
    if after == 0:
        return hull[0][1]
    (x0, y0) = hull[after - 1]
    if after == len(hull):
        return y0
    (x1, y1) = hull[after]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
