"""Histograms whose intervals have edges: in one dimension with edges as a result, and in several at once."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.error_function import number
from batch_export.exporter.ops.marking import lowering


def _even_edges(column: ir.Value, bins: int, limits: Sequence[float] | None) -> RecordedValue:
    """Edges of intervals of one length, from the smallest to the largest element or between limits: `[bins + 1]`."""
    if limits is None:
        low, high = op.ReduceMin(column, keepdims=0), op.ReduceMax(column, keepdims=0)
    else:
        low, high = axes.like(float(limits[0]), column), axes.like(float(limits[1]), column)
    half = op.Where(op.Equal(low, high), axes.like(0.5, column), axes.like(0.0, column))
    low, high = op.Sub(low, half), op.Add(high, half)
    step = op.Div(op.Sub(high, low), axes.like(float(bins), column))
    numbers = op.Constant(value=ir.tensor([float(place) for place in range(bins + 1)], dtype=column.dtype))
    from_end = op.Constant(value=ir.tensor([float(bins - place) for place in range(bins + 1)], dtype=column.dtype))
    is_low = op.Constant(value=ir.tensor([2 * place < bins + 1 for place in range(bins + 1)], dtype=ir.DataType.BOOL))
    return op.Where(is_low, op.Add(low, op.Mul(numbers, step)), op.Sub(high, op.Mul(from_end, step)))


def _places(column: ir.Value, edges: ir.Value) -> tuple[RecordedValue, RecordedValue]:
    """The interval of each element, `int64[n]`, and whether it has one; the last one has its upper end too."""
    reached = op.Cast(op.GreaterOrEqual(op.Unsqueeze(column, [1]), op.Unsqueeze(edges, [0])), to=ir.DataType.INT64)
    last = op.Sub(op.Squeeze(op.Shape(edges), [0]), 2)
    place = op.Sub(op.ReduceSum(reached, [1], keepdims=0), 1)
    low, high = op.Gather(edges, 0, axis=0), op.Gather(edges, -1, axis=0)
    inside = op.And(op.GreaterOrEqual(column, low), op.LessOrEqual(column, high))
    return op.Max(op.Min(place, last), 0), inside


def _counted(
    columns: Sequence[ir.Value], edges: Sequence[ir.Value], weight: ir.Value | None, density: bool
) -> RecordedValue:
    """Counts, or sums of weights, per cell of the grid that the edges make."""
    sizes = [op.Sub(op.Shape(one), 1) for one in edges]
    flat: ir.Value | None = None
    inside: ir.Value | None = None
    for column, one, size in zip(columns, edges, sizes, strict=True):
        place, within = _places(column, one)
        flat = place if flat is None else op.Add(op.Mul(flat, size), place)
        inside = within if inside is None else op.And(inside, within)
    assert flat is not None
    assert inside is not None
    shape = op.Concat(*sizes, axis=0) if len(sizes) > 1 else sizes[0]
    total = op.ReduceProd(shape, keepdims=1)
    weights: ir.Value = op.Cast(inside, to=ir.DataType.DOUBLE)
    if weight is not None:
        weights = op.Where(inside, op.Cast(op.Reshape(weight, [-1]), to=ir.DataType.DOUBLE), number(0.0))
    empty = op.Expand(number(0.0), total)
    counts = op.ScatterElements(empty, flat, weights, axis=0, reduction="add")
    counts = op.Reshape(counts, shape)
    if density:
        counts = op.Div(counts, op.ReduceSum(counts, keepdims=0))
        for dim, one in enumerate(edges):
            wide = op.Cast(one, to=ir.DataType.DOUBLE)
            lengths = op.Sub(op.Slice(wide, [1], [2**62], [0]), op.Slice(wide, [0], [-1], [0]))
            rest = [*range(dim), *range(dim + 1, len(edges))]
            counts = op.Div(counts, op.Unsqueeze(lengths, rest) if rest else lengths)
    return op.CastLike(counts, columns[0])


@lowering("aten::histogram.bin_ct")
def histogram_of_count(
    self: ir.Value,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: ir.Value | None = None,
    density: bool = False,
) -> tuple[RecordedValue, RecordedValue]:
    """Counts `[bins]` and edges `[bins + 1]`."""
    data = axes.flat(self)
    edges = _even_edges(data, bins, range)
    return _counted([data], [edges], weight, density), edges


@lowering("aten::histogram.bins_tensor")
def histogram_of_edges(
    self: ir.Value, bins: ir.Value, *, weight: ir.Value | None = None, density: bool = False
) -> tuple[RecordedValue, RecordedValue]:
    """Counts between given edges, and these."""
    return _counted([axes.flat(self)], [bins], weight, density), op.Identity(bins)


def _columns(self: ir.Value, count: int) -> list[RecordedValue]:
    rows = op.Reshape(self, [-1, count])
    return [op.Squeeze(op.Slice(rows, [place], [place + 1], [1]), [1]) for place in range(count)]


@lowering("aten::_histogramdd_bin_edges")
def histogramdd_bin_edges(
    self: ir.Value,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: ir.Value | None = None,
    density: bool = False,
) -> list[RecordedValue]:
    """The edges along each dimension of the points."""
    limits = [None] * len(bins) if range is None else [range[2 * at : 2 * at + 2] for at, _ in enumerate(bins)]
    return [_even_edges(*one) for one in zip(_columns(self, len(bins)), bins, limits, strict=True)]


@lowering("aten::_histogramdd_from_bin_cts")
def histogramdd_from_bin_cts(
    self: ir.Value,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: ir.Value | None = None,
    density: bool = False,
) -> RecordedValue:
    """Counts per cell of a grid of even intervals."""
    return _counted(_columns(self, len(bins)), histogramdd_bin_edges(self, bins, range=range), weight, density)


@lowering("aten::_histogramdd_from_bin_tensors")
def histogramdd_from_bin_tensors(
    self: ir.Value, bins: Sequence[ir.Value], *, weight: ir.Value | None = None, density: bool = False
) -> RecordedValue:
    """Counts per cell of a grid with given edges."""
    return _counted(_columns(self, len(bins)), list(bins), weight, density)
