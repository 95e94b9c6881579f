"""One hull below another: pure Python, and the same as numpy's interpolation says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch_export.numbers.rounding import Point, lies_below

points = st.lists(st.tuples(st.floats(0, 100), st.floats(1e-9, 10)), min_size=1, max_size=6)


def rising(cloud: list[Point]) -> list[Point]:
    xs = sorted({x for x, _ in cloud})
    return list(zip(xs, sorted(y for _, y in cloud)[: len(xs)], strict=True))


@given(points, points, st.floats(0.5, 4))
def test_it_agrees_with_interpolation(lower: list[Point], upper: list[Point], factor: float) -> None:
    hull = rising(upper)
    xs, ys = zip(*hull, strict=True)
    heights = [factor * float(np.interp(x, xs, ys)) for x, _ in lower]
    if any(y == pytest.approx(height, rel=1e-9) for (_, y), height in zip(lower, heights, strict=True)):
        return  # the last bit decides, and may
    assert lies_below(lower, hull, factor) is all(y <= height for (_, y), height in zip(lower, heights, strict=True))


@pytest.mark.parametrize(
    ("lower", "upper", "below"),
    [
        ((), (), True),
        ((), ((1.0, 1.0),), True),
        (((1.0, 1.0),), (), False),
        (((0.5, 1.9),), ((1.0, 1.0), (3.0, 2.0)), True),  # level left of the first vertex
        (((0.5, 2.1),), ((1.0, 1.0), (3.0, 2.0)), False),
        (((2.0, 3.0),), ((1.0, 1.0), (3.0, 2.0)), True),  # on the line between
        (((2.0, 3.1),), ((1.0, 1.0), (3.0, 2.0)), False),
        (((9.0, 4.0),), ((1.0, 1.0), (3.0, 2.0)), True),  # level right of the last
        (((9.0, 4.1),), ((1.0, 1.0), (3.0, 2.0)), False),
    ],
)
def test_corners(lower: tuple[Point, ...], upper: tuple[Point, ...], below: bool) -> None:
    assert lies_below(lower, upper, 2.0) is below
