"""Writing and reading at computed places: scatter with reductions, put, take, diagonals."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.complex_parts import is_pair, joined, paired, part
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes, loops
from batch_export.exporter.ops.marking import lowering

_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


def _neutral(reduction: str, value: ir.Value) -> RecordedValue:
    """What leaves every element as it is."""
    assert value.dtype is not None
    if reduction in ("add", "mean"):
        return axes.like(0, value)
    if reduction == "mul":
        return axes.like(1, value)
    if value.dtype == ir.DataType.BOOL:
        return axes.like(reduction == "min", value)
    if axes.is_float(value):
        return axes.like(float("-inf") if reduction == "max" else float("inf"), value)
    limits = np.iinfo(value.dtype.numpy())
    return axes.like(int(limits.min if reduction == "max" else limits.max), value)


def _fitting(src: ir.Value, index: ir.Value) -> ir.Value:
    """The part of the source that has a counterpart in the index."""
    count = axes.rank(index)
    if src.shape is not None and index.shape is not None and list(src.shape) == list(index.shape):
        return src
    return op.Slice(src, [0] * count, op.Shape(index), list(range(count)))


def _is_nothing(index: ir.Value) -> bool:
    """Whether an index has no elements at any size, and may have another number of axes then."""
    return any(axes.fixed_size(index, axis) == 0 for axis in range(axes.rank(index)))


def _reduced(
    self: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str, include_self: bool
) -> RecordedValue:
    if _is_nothing(index):
        return op.Identity(self)
    if axes.rank(self) == 0:
        whole = _reduced(
            axes.at_least_1d(self), 0, axes.at_least_1d(index), axes.at_least_1d(src), reduce, include_self
        )
        return op.Squeeze(whole, [0])
    index, src = axes.at_least_1d(index), axes.at_least_1d(src)
    position = axes.axis(self, dim)
    kind = "mean" if reduce == "mean" else _REDUCTIONS[reduce]
    start: ir.Value = self
    if not include_self:
        empty = op.Expand(_neutral(kind, self), op.Shape(index))
        start = op.ScatterElements(self, index, empty, axis=position)
    updates = _fitting(src, index)
    if kind in ("max", "min") and axes.is_float(self):
        return _extreme(start, index, updates, position, kind, include_self and _may_be_nan(self))
    if kind != "mean":
        return op.ScatterElements(start, index, updates, axis=position, reduction=kind)
    total = op.ScatterElements(start, index, updates, axis=position, reduction="add")
    ones = op.Expand(axes.like(1, self), op.Shape(index))
    counts = op.Expand(axes.like(int(include_self), self), op.Shape(self))
    counts = op.ScatterElements(counts, index, ones, axis=position, reduction="add")
    if not include_self:
        counts = op.Max(counts, axes.like(1, self))
    if axes.is_float(self):
        return op.Div(total, counts)
    return _floor_divided(total, counts)


def _extreme(
    start: ir.Value, index: ir.Value, updates: ir.Value, position: int, kind: str, start_counts: bool
) -> RecordedValue:
    """The largest or smallest of what meets at each place; NaN, which runtimes treat in different ways, beats all.

    It is added afterwards, to each other place -0.0, which changes nothing.
    """
    found = axes.shaped(op.ScatterElements(start, index, updates, axis=position, reduction=kind), start.shape)
    added = op.Where(op.IsNaN(updates), axes.like(math.nan, start), axes.like(-0.0, start))
    found = op.ScatterElements(found, index, added, axis=position, reduction="add")
    return op.Where(op.IsNaN(start), start, found) if start_counts else found


_SAME_ELEMENTS = ("Expand", "Reshape", "Unsqueeze", "Squeeze", "Identity")


def _may_be_nan(value: ir.Value) -> bool:
    """Whether an element may be NaN: not of a number that is repeated."""
    known = loops.recorder().known(value)
    if known is not None:
        return bool(np.isnan(known.astype(np.float64)).any())
    node = value.producer()
    if node is None or node.domain or node.op_type not in (*_SAME_ELEMENTS, "ConstantOfShape"):
        return True
    if node.op_type == "ConstantOfShape":
        number = node.attributes.get_tensor("value", None)
        return number is not None and bool(np.isnan(number.numpy().astype(np.float64)).any())
    return node.inputs[0] is None or _may_be_nan(node.inputs[0])


def _floor_divided(total: RecordedValue, counts: RecordedValue) -> RecordedValue:
    quotient = op.Div(total, counts)
    exact = op.Equal(op.Mul(quotient, counts), total)
    low = op.And(op.Less(total, op.CastLike(0, total)), op.Not(exact))
    return op.Where(low, op.Sub(quotient, op.CastLike(1, total)), quotient)


def _written(self: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> RecordedValue:
    if _is_nothing(index):
        return op.Identity(self)
    if axes.rank(self) == 0:
        return op.Reshape(src, op.Shape(self), allowzero=1) if axes.rank(src) else op.Identity(src)
    index, src = axes.at_least_1d(index), axes.at_least_1d(src)
    return op.ScatterElements(self, index, _fitting(src, index), axis=axes.axis(self, dim))


@lowering("aten::scatter.src")
def scatter(self: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> RecordedValue:
    """Writes a source, as much of it as the index has elements, at the places of the index."""
    return _written(self, dim, index, src)


@lowering("aten::scatter.value")
def scatter_value(self: ir.Value, dim: int, index: ir.Value, value: float) -> RecordedValue:
    """Writes a number at the places of an index."""
    number = op.CastLike(value, self) if isinstance(value, ir.Value) else axes.like(value, self)
    return _written(self, dim, index, _filled(number, index))


@lowering("aten::scatter_add")
def scatter_add(self: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> RecordedValue:
    """Adds a source in at the places of an index."""
    return _reduced(self, dim, index, src, "sum", True)


@lowering("aten::scatter.reduce")
def scatter_with(self: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str) -> RecordedValue:
    """Adds or multiplies a source in at the places of an index."""
    return _reduced(self, dim, index, src, reduce, True)


@lowering("aten::scatter.value_reduce")
def scatter_value_with(self: ir.Value, dim: int, index: ir.Value, value: float, reduce: str) -> RecordedValue:
    """Adds or multiplies a number in at the places of an index."""
    assert self.dtype is not None
    number = value if isinstance(value, ir.Value) else axes.like(value, self)
    return _reduced(self, dim, index, _filled(number, index), reduce, True)


def _filled(number: ir.Value, index: ir.Value) -> RecordedValue:
    return axes.shaped(op.Expand(number, op.Shape(index)), index.shape)


@lowering("aten::scatter_reduce.two")
def scatter_reduce(
    self: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str, include_self: bool = True
) -> RecordedValue:
    """Reduces a source into the places of an index."""
    return _reduced(self, dim, index, src, reduce, include_self)


@lowering("aten::index_reduce")
def index_reduce(
    self: ir.Value, dim: int, index: ir.Value, source: ir.Value, reduce: str, include_self: bool = True
) -> RecordedValue:
    """Reduces slices of a source into the slices that a vector of indices names."""
    position = axes.axis(self, dim)
    if axes.rank(self):
        shape = [1] * axes.rank(self)
        shape[position] = -1
        index = op.Expand(op.Reshape(index, shape), op.Shape(source))
        axes.shaped(index, source.shape)
    return _reduced(self, dim, index, source, reduce, include_self)


@lowering("aten::put")
def put(self: ir.Value, index: ir.Value, source: ir.Value, accumulate: bool = False) -> RecordedValue:
    """Writes (or adds) elements at places of the flattened tensor."""
    reduction = "add" if accumulate else "none"
    flat = op.ScatterElements(axes.flat(self), axes.flat(index), axes.flat(source), axis=0, reduction=reduction)
    return op.Reshape(flat, op.Shape(self), allowzero=1)


@lowering("aten::take")
def take(self: ir.Value, index: ir.Value) -> RecordedValue:
    """Reads elements at places of the flattened tensor."""
    return op.Gather(axes.flat(self), index, axis=0)


@lowering("aten::diagonal_scatter")
def diagonal_scatter(self: ir.Value, src: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> RecordedValue:
    """The tensor with one diagonal of two axes replaced; the source has the diagonal as its last axis."""
    count = axes.rank(self)
    first, second = axes.axis(self, dim1), axes.axis(self, dim2)
    others = [other for other in range(count) if other not in (first, second)]
    order = [*others, first, second]
    data = op.Transpose(self, perm=order)
    rows = op.Range(0, op.Squeeze(axes.size(self, first), [0]), 1)
    columns = op.Range(0, op.Squeeze(axes.size(self, second), [0]), 1)
    on_diagonal = op.Equal(op.Sub(op.Unsqueeze(columns, [0]), op.Unsqueeze(rows, [1])), offset)
    along: ir.Value = rows if offset >= 0 else columns
    if axes.fixed_size(src, -1):
        along = op.Min(along, op.Sub(axes.size(src, -1), 1))
    else:  # one more element, so that there is something to gather off a diagonal of none
        along = op.Min(along, axes.size(src, -1))
        src = axes.padded(src, [0], [1], [-1], axes.like(0, src))
    spread = op.Unsqueeze(op.Gather(src, along, axis=count - 2), [count - 1 if offset >= 0 else count - 2])
    merged = op.Where(on_diagonal, spread, data)
    return op.Transpose(merged, perm=[order.index(position) for position in range(count)])


@lowering("aten::diagonal_scatter", is_complex=True)
def diagonal_scatter_complex(
    self: ir.Value, src: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> RecordedValue:
    """The same where one of the two is complex, part by part; a real tensor takes the real parts."""
    if not is_pair(self):
        return diagonal_scatter(self, op.CastLike(part(src, 0), self), offset, dim1, dim2)
    source = paired(src, self)
    if source is not src and src.shape is not None:
        source.shape = ir.Shape([*src.shape, 2])
    real, imaginary = (diagonal_scatter(part(self, which), part(source, which), offset, dim1, dim2) for which in (0, 1))
    return joined(real, imaginary)


@lowering("batch_export::fill_diagonal")
def fill_diagonal(self: ir.Value, fill_value: float, wrap: bool = False) -> RecordedValue:
    """The tensor with a number where all indices are equal; `wrap` starts again below the square of a tall matrix."""
    count = axes.rank(self)
    rows, *others = (
        op.Unsqueeze(
            op.Range(0, axes.scalar(axes.size(self, position)), 1), [one for one in range(count) if one != position]
        )
        for position in range(count)
    )
    if wrap and count == 2:
        rows = op.Mod(rows, op.Add(axes.size(self, 1), [1]))  # after the last column one row is left out
    chosen: RecordedValue = op.Equal(rows, others[0])
    for other in others[1:]:
        chosen = op.And(chosen, op.Equal(rows, other))
    return op.Where(chosen, axes.like(fill_value, self), self)


@lowering("batch_export::fill_diagonal", is_complex=True)
def fill_diagonal_complex(self: ir.Value, fill_value: complex, wrap: bool = False) -> RecordedValue:
    """The same of pairs, part by part."""
    number = complex(fill_value)
    return joined(fill_diagonal(part(self, 0), number.real, wrap), fill_diagonal(part(self, 1), number.imag, wrap))
