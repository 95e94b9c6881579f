"""How much each old element counts for each new one where an axis is resized: tables, `float64[new, old]`.

Source of the rules: for filters that are widened, the documented behaviour of Pillow's resize, which torch follows; for
the others Keys' cubic convolution and lines between neighbours, the element at an end standing for all beyond it.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.resized_lengths import number, wide

Kernel = Callable[[RecordedValue], RecordedValue]
"""From distances to weights."""
REACH = {"linear": 1, "cubic": 2}
"""How many old elements count on either side, where the filter is not widened."""


def _triangle(x: RecordedValue) -> RecordedValue:
    return op.Max(op.Sub(number(1.0), op.Abs(x)), number(0.0))


def _keys(a: float) -> Kernel:
    """Keys' cubic convolution."""

    def weights(x: RecordedValue) -> RecordedValue:
        x = op.Abs(x)
        steep = op.Sub(op.Mul(number(a + 2), x), number(a + 3))
        inner = op.Add(op.Mul(op.Mul(steep, x), x), number(1.0))
        outer = op.Mul(number(a), x)
        for factor in (-5 * a, 8 * a):
            outer = op.Mul(op.Add(outer, number(factor)), x)
        outer = op.Sub(outer, number(4 * a))
        beyond = op.Where(op.Less(x, number(2.0)), outer, number(0.0))
        return op.Where(op.Less(x, number(1.0)), inner, beyond)

    return weights


def step_between(length: ir.Value, wanted: ir.Value, scale: float | None, align_corners: bool) -> RecordedValue:
    """The distance between new elements, in old ones."""
    old, new = wide(length), wide(wanted)
    if not align_corners:
        return op.Div(old, new) if scale is None else number(1.0 / scale)
    gaps = op.Max(op.Sub(new, number(1.0)), number(1.0))
    return op.Where(op.Greater(new, number(1.0)), op.Div(op.Sub(old, number(1.0)), gaps), number(0.0))


def _places(length: ir.Value, axis: int) -> RecordedValue:
    return op.Unsqueeze(wide(op.Range(0, axes.scalar(length), 1)), [axis])


def widened_shares(
    length: ir.Value, wanted: ir.Value, scale: float | None, align_corners: bool, mode: str
) -> RecordedValue:
    """The table of a filter as wide as the step between new elements, cut at the ends and normalised.

    Args:
        length: the old length, `int64[1]`.
        wanted: the new one.
        scale: the factor that was given, if any.
        align_corners: whether the outermost elements keep their places.
        mode: `linear` or `cubic` (Keys' a is -1/2).
    """
    step = step_between(length, wanted, scale, align_corners)
    kernel = _triangle if mode == "linear" else _keys(-0.5)
    widened = op.Max(step, number(1.0))
    support = op.Mul(widened, number(float(REACH[mode])))
    columns = _places(length, 0)
    centre = op.Mul(step, op.Add(_places(wanted, 1), number(0.5)))
    low = op.Floor(op.Add(op.Sub(centre, support), number(0.5)))
    high = op.Floor(op.Add(op.Add(centre, support), number(0.5)))
    inside = op.And(op.GreaterOrEqual(columns, low), op.Less(columns, high))
    weight = kernel(op.Div(op.Add(op.Sub(columns, centre), number(0.5)), widened))
    weight = op.Where(inside, weight, number(0.0))
    total = op.ReduceSum(weight, [1], keepdims=1)
    return op.Div(weight, op.Where(op.Equal(total, number(0.0)), number(1.0), total))


def plain_shares(
    length: ir.Value, wanted: ir.Value, scale: float | None, align_corners: bool, mode: str
) -> RecordedValue:
    """The table of a filter that is not widened; the arguments are those of `widened_shares` (Keys' a is -3/4)."""
    step = step_between(length, wanted, scale, align_corners)
    kernel = _triangle if mode == "linear" else _keys(-0.75)
    rows, columns = _places(wanted, 1), _places(length, 0)
    if align_corners:
        centre = op.Mul(rows, step)
    else:
        centre = op.Sub(op.Mul(op.Add(rows, number(0.5)), step), number(0.5))
        centre = op.Max(centre, number(0.0)) if mode == "linear" else centre
    first, end = op.Floor(centre), wide(op.Sub(length, [1]))
    total = None
    for place in range(1 - REACH[mode], REACH[mode] + 1):
        tap = op.Add(first, number(float(place)))
        reached = op.Equal(columns, op.Min(op.Max(tap, number(0.0)), end))
        part = op.Where(reached, kernel(op.Sub(tap, centre)), number(0.0))
        total = part if total is None else op.Add(total, part)
    assert total is not None
    return total
