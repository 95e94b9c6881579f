"""Searching: between which edges values lie, and whether they are among others."""

from __future__ import annotations

import math

import onnx_ir as ir

from batch_export.exporter.graph import promote
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import Number, RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.division import operands
from batch_export.exporter.ops.marking import lowering

_HALVINGS = 32
"""How often rows of a free length are halved, at most; as each edge is compared with each value, none is longer."""


def _insertion_points(edges: ir.Value, self: ir.Value, right: bool, out_int32: bool) -> RecordedValue:
    """How many of `edges[..., m]` lie before each of `self[..., n]`.

    Eager halves the edges, goes on behind the middle unless it is a number that is not before the value, and so ends
    behind the last edge where that holds for each middle it can reach by going on: of NaN, or beside edges of NaN.
    """
    before, behind = (op.LessOrEqual, op.Greater) if right else (op.Less, op.GreaterOrEqual)
    beside = axes.shaped(op.Unsqueeze(self, [axes.rank(self)]), None if self.shape is None else [*self.shape, 1])
    found = _count(before(_in_rows(edges), beside), axes.rank(self))
    if axes.is_float(edges):
        stops = _count(behind(_in_rows(_middles(edges)), beside), axes.rank(self))
        found = op.Where(op.Equal(stops, axes.like(0, stops)), axes.scalar(axes.size(edges, -1)), found)
    return op.Cast(found, to=ir.DataType.INT32) if out_int32 else found


def _in_rows(edges: ir.Value) -> ir.Value:
    return op.Unsqueeze(edges, [axes.rank(edges) - 1]) if axes.rank(edges) > 1 else edges


def _count(truths: ir.Value, dim: int) -> RecordedValue:
    return op.ReduceSum(op.Cast(truths, to=ir.DataType.INT64), [dim], keepdims=0)


def _middles(edges: ir.Value) -> ir.Value:
    """The edges that halving meets while it goes on behind each: at `m - (m + 1) // 2`, `m - (m + 1) // 4`, ..."""
    count, last = axes.fixed_size(edges, -1), axes.rank(edges) - 1
    if count is not None:
        fixed = [count - ((count + 1) >> step) for step in range(1, (count + 1).bit_length())]
        return axes.shaped(op.Gather(edges, fixed, axis=last), [*list(edges.shape or ())[:-1], len(fixed)])
    size = axes.size(edges, -1)
    powers = op.Constant(value_ints=[1 << step for step in range(1, _HALVINGS)])
    places = op.Sub(size, op.Div(op.Add(size, 1), powers))
    nan = axes.padded(edges, [0], [1], [last], axes.like(math.nan, edges))  # where there are none left to meet
    return axes.shaped(op.Gather(nan, places, axis=last), [*list(edges.shape or ())[:-1], _HALVINGS - 1])


def _common(left: ir.Value, right: ir.Value) -> tuple[ir.Value, ir.Value]:
    if left.dtype == right.dtype or left.dtype is None or right.dtype is None:
        return left, right
    wanted = promote.result_dtype([left, right]) or left.dtype
    first, second = (axes.shaped(op.Cast(value, to=wanted), value.shape) for value in (left, right))
    return first, second


@lowering("aten::searchsorted.Tensor")
def searchsorted(
    sorted_sequence: ir.Value,
    self: ir.Value,
    out_int32: bool = False,
    right: bool = False,
    side: str = "",
    sorter: ir.Value | None = None,
) -> RecordedValue:
    """Where each value would be inserted in the sorted rows `[..., m]`; rows pair up with rows `[..., n]`."""
    edges = sorted_sequence
    if sorter is not None:
        edges = op.GatherElements(edges, sorter, axis=-1)
        axes.shaped(edges, sorted_sequence.shape)
    edges, values = _common(edges, self)
    return _insertion_points(edges, values, right or side == "right", out_int32)


@lowering("aten::searchsorted.Scalar")
def searchsorted_scalar(
    sorted_sequence: ir.Value,
    self: ir.Value,
    out_int32: bool = False,
    right: bool = False,
    side: str = "",
    sorter: ir.Value | None = None,
) -> RecordedValue:
    """`searchsorted` of one number."""
    return searchsorted(sorted_sequence, axes.at_least_0d(self), out_int32, right, side, sorter)


@lowering("aten::bucketize.Tensor")
def bucketize(self: ir.Value, boundaries: ir.Value, out_int32: bool = False, right: bool = False) -> RecordedValue:
    """The bucket of each element between ascending boundaries `[m]`."""
    edges, values = _common(boundaries, self)
    return _insertion_points(edges, values, right, out_int32)


@lowering("aten::bucketize.Scalar")
def bucketize_scalar(
    self: ir.Value, boundaries: ir.Value, out_int32: bool = False, right: bool = False
) -> RecordedValue:
    """The bucket of one number."""
    return bucketize(axes.at_least_0d(self), boundaries, out_int32, right)


@lowering("aten::isin.Tensor_Tensor")
def isin(
    elements: ir.Value, test_elements: ir.Value, assume_unique: bool = False, invert: bool = False
) -> RecordedValue:
    """Whether each element is one of the others."""
    left, right = _common(elements, test_elements)
    same = op.Equal(op.Unsqueeze(left, [axes.rank(elements)]), op.Reshape(right, [-1]))
    found = op.Greater(op.ReduceSum(op.Cast(same, to=ir.DataType.INT64), [-1], keepdims=0), 0)
    return op.Not(found) if invert else found


@lowering("aten::isin.Scalar_Tensor")
def number_is_in(
    element: Number, test_elements: ir.Value, assume_unique: bool = False, invert: bool = False
) -> RecordedValue:
    """Whether a number is one of the elements, of which there may be none."""
    left, right = operands(element, test_elements)
    found = op.Greater(op.ReduceSum(op.Cast(op.Equal(left, right), to=ir.DataType.INT64), keepdims=0), 0)
    return op.Not(found) if invert else found
