"""The upper hull of a cloud of points, gathered piece by piece.

Points `(|expected|, |error|)` arrive in arrays of any number; what leaves is the few of them that decide, for every
`atol >= 0` and `rtol >= 0`, whether `|error| <= atol + rtol * |expected|` holds for all. Points of error zero hold
always and are left out. Vertices are points of the cloud, never computed ones; which points become vertices is decided
in float64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Point = tuple[float, float]


def widen_hull(hull: list[Point], x: Floats, y: Floats) -> list[Point]:
    """Returns the rising part of the upper hull of `hull`'s points and the points `(x, y)` together.

    The largest `y - rtol * x` over the points is taken on that part whatever `rtol >= 0` is: to the right of its last
    point, the highest of all, both terms only get smaller. O(n) for points that are mostly below the hull.

    Args:
        hull: what earlier calls returned; empty at first.
        x, y: finite, not negative.
    """
    above = y > 0
    if hull:
        corners = np.asarray(hull)
        above &= y > np.interp(x, corners[:, 0], corners[:, 1], left=0.0)
    if not above.any():
        return hull
    x = np.concatenate([x[above], [corner[0] for corner in hull]])
    y = np.concatenate([y[above], [corner[1] for corner in hull]])
    order = np.lexsort((-y, x))
    x, y = x[order], y[order]
    highest_before = np.concatenate([[0.0], np.maximum.accumulate(y)[:-1]])
    rising = y > highest_before
    return _chain(x[rising].tolist(), y[rising].tolist())


def _chain(xs: list[float], ys: list[float]) -> list[Point]:
    """Andrew's monotone chain over points that rise in x and in y."""
    chain: list[Point] = []
    for x, y in zip(xs, ys, strict=True):
        while len(chain) > 1:
            (x0, y0), (x1, y1) = chain[-2:]
            if (y1 - y0) / (x1 - x0) > (y - y1) / (x - x1):
                break
            chain.pop()
        chain.append((x, y))
    return chain
