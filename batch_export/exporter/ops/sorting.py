"""Sorting, order statistics, and values that repeat.

TopK over a whole axis is the sort: onnxruntime's breaks ties by position, which makes it stable. NaN counts as larger
than every number, as in torch, in whatever sorts a whole axis; `topk` leaves its place to the runtime.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering

_ABSENT: dict[ir.DataType | None, int] = {
    **dict.fromkeys((ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8), 0),
    ir.DataType.INT32: -(2**31),
    ir.DataType.INT64: -(2**63),
}
"""NaN as integers: the smallest one of 32 and 64 bits, of which the narrower ones keep the low bits."""


def ordered(self: ir.Value, dim: int, descending: bool) -> tuple[RecordedValue, RecordedValue]:
    """All values along an axis in order, and where each came from."""
    if axes.rank(self) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    position = axes.axis(self, dim)
    if not axes.is_float(self):
        return _by_top(self, position, descending)
    _, indices = _by_top(_nan_last(self), position, descending)
    if self.dtype == ir.DataType.DOUBLE:
        lost = op.GatherElements(op.Cast(op.IsNaN(self), to=ir.DataType.INT32), indices, axis=position)
        _, again = _by_top(axes.shaped(lost, self.shape), position, descending)
        indices = axes.shaped(op.GatherElements(indices, again, axis=position), self.shape)
    return axes.shaped(op.GatherElements(self, indices, axis=position), self.shape), indices


def _by_top(self: ir.Value, position: int, descending: bool) -> tuple[RecordedValue, RecordedValue]:
    """As `ordered`, of values among which there is no NaN."""
    if axes.rank(self) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    if self.dtype == ir.DataType.UINT64:  # for which onnxruntime has no kernel
        _, indices = _by_top(_as_signed(self), position, descending)
        return axes.shaped(op.GatherElements(self, indices, axis=position), self.shape), indices
    values, indices = op.TopK(self, axes.size(self, position), axis=position, largest=int(descending), sorted=1)
    return axes.shaped(values, self.shape), axes.shaped(indices, self.shape)


def _as_signed(self: ir.Value) -> RecordedValue:
    """uint64 as int64 in the same order: 2 ** 63 less, by wrapping around twice."""
    signed = op.Cast(self, to=ir.DataType.INT64)
    return axes.shaped(op.Add(signed, axes.like(-(2**63), signed)), self.shape)


def _nan_last(self: ir.Value) -> RecordedValue:
    """What onnxruntime's TopK orders as torch orders `self`: it has no place for NaN, which here is infinite.

    Infinity gives way to a number between it and the largest of the dtype, which the next wider one has. Of float64
    NaN and infinity are equal here, and a second sort parts them.
    """
    if self.dtype == ir.DataType.DOUBLE:
        return axes.shaped(op.Where(op.IsNaN(self), axes.like(float("inf"), self), self), self.shape)
    wider = ir.DataType.DOUBLE if self.dtype == ir.DataType.FLOAT else ir.DataType.FLOAT
    wide = axes.shaped(op.Cast(self, to=wider), self.shape)
    finite = op.Min(wide, axes.like(float(wider.max), wide))
    return axes.shaped(op.Where(op.IsNaN(self), axes.like(float("inf"), wide), finite), self.shape)


@lowering("aten::topk")
def topk(
    self: ir.Value, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[RecordedValue, ...]:
    """The largest (or smallest) values along an axis and their places; of a scalar the scalar itself."""
    if axes.rank(self) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    count = op.Reshape(k, [1]) if isinstance(k, ir.Value) else op.Constant(value_ints=[k])
    return op.TopK(self, count, axis=axes.axis(self, dim), largest=int(largest), sorted=int(sorted))


@lowering("aten::sort")
def sort(self: ir.Value, dim: int = -1, descending: bool = False) -> tuple[RecordedValue, RecordedValue]:
    """`aten::sort`."""
    return ordered(self, dim, descending)


@lowering("aten::sort.stable")
def sort_stable(
    self: ir.Value, stable: bool = False, dim: int = -1, descending: bool = False
) -> tuple[RecordedValue, RecordedValue]:
    """`aten::sort.stable`."""
    return ordered(self, dim, descending)


@lowering("aten::argsort")
def argsort(self: ir.Value, dim: int = -1, descending: bool = False) -> RecordedValue:
    """`aten::argsort`."""
    return ordered(self, dim, descending)[1]


@lowering("aten::argsort.stable")
def argsort_stable(self: ir.Value, stable: bool = False, dim: int = -1, descending: bool = False) -> RecordedValue:
    """`aten::argsort.stable`."""
    return ordered(self, dim, descending)[1]


@lowering("aten::msort")
def msort(self: ir.Value) -> RecordedValue:
    """Sorted along the first axis."""
    return ordered(self, 0, False)[0]


def _dropped(value: ir.Value, position: int, keepdim: bool) -> ir.Value:
    return value if keepdim else op.Squeeze(value, [position])


@lowering("aten::kthvalue")
def kthvalue(self: ir.Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[ir.Value, ...]:
    """The k-th smallest value along an axis (k counts from 1) and its index."""
    if axes.rank(self) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    position = axes.axis(self, dim)
    found = ordered(self, position, False)
    picked = (op.Gather(part, op.Sub(k, [1]), axis=position) for part in found)
    return tuple(_dropped(part, position, keepdim) for part in picked)


def _lower_middle(self: ir.Value, position: int, skip_nan: bool) -> tuple[ir.Value, ir.Value]:
    """The lower of the two middle values along an axis, with the axis kept."""
    largest = op.CastLike(float("inf"), self) if axes.is_float(self) else None
    is_nan = op.IsNaN(self) if largest is not None else None
    comparable = self if is_nan is None else axes.shaped(op.Where(is_nan, largest, self), self.shape)
    values, indices = _by_top(comparable, position, False)
    if is_nan is None:
        middle = op.Div(op.Sub(axes.size(self, position), 1), 2)
        return op.Gather(values, middle, axis=position), op.Gather(indices, middle, axis=position)
    counted = op.ReduceSum(op.Cast(op.Not(is_nan), to=ir.DataType.INT64), [position], keepdims=1)
    if skip_nan:
        middle = op.Div(op.Max(op.Sub(counted, 1), 0), 2)
        nothing = op.Equal(counted, 0)
    else:
        middle = op.Expand(op.Div(op.Sub(axes.size(self, position), 1), 2), op.Shape(counted))
        nothing = op.Less(counted, axes.size(self, position))
    value = op.GatherElements(values, middle, axis=position)
    index = op.GatherElements(indices, middle, axis=position)
    first_nan = op.ArgMax(op.Cast(is_nan, to=ir.DataType.INT32), axis=position, keepdims=1)
    return op.Where(nothing, op.CastLike(float("nan"), self), value), op.Where(nothing, first_nan, index)


def _median(self: ir.Value, dim: int, keepdim: bool, skip_nan: bool) -> tuple[ir.Value, ...]:
    if axes.rank(self) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    position = axes.axis(self, dim)
    return tuple(_dropped(part, position, keepdim) for part in _lower_middle(self, position, skip_nan))


def _flattened(self: ir.Value) -> RecordedValue:
    return axes.shaped(axes.flat(self), [None])


def _one_at_least(self: ir.Value) -> RecordedValue:
    """The elements in one axis; where there may be none, what torch gives in their place: NaN, cast to the dtype."""
    flat = _flattened(self)
    if all(isinstance(size, int) and size for size in self.shape or [None]):
        return flat
    missing = op.Sub([1], op.Min(op.Reshape(op.Size(self), [1]), [1]))
    absent = op.Expand(axes.like(_ABSENT.get(self.dtype, float("nan")), self), missing)
    return axes.shaped(op.Concat(flat, absent, axis=0), [None])


@lowering("aten::median")
def median(self: ir.Value) -> RecordedValue:
    """The lower middle of all elements; NaN if one is NaN, or there is none."""
    return op.Squeeze(_lower_middle(_one_at_least(self), 0, False)[0], [0])


@lowering("aten::nanmedian")
def nanmedian(self: ir.Value) -> RecordedValue:
    """The lower middle of all elements that are not NaN."""
    return op.Squeeze(_lower_middle(_one_at_least(self), 0, True)[0], [0])


@lowering("aten::median.dim")
def median_dim(self: ir.Value, dim: int, keepdim: bool = False) -> tuple[ir.Value, ...]:
    """The lower middle along an axis and its index; NaN if one is NaN."""
    return _median(self, dim, keepdim, False)


@lowering("aten::nanmedian.dim")
def nanmedian_dim(self: ir.Value, dim: int, keepdim: bool = False) -> tuple[ir.Value, ...]:
    """The lower middle along an axis of what is not NaN, and its index."""
    return _median(self, dim, keepdim, True)


@lowering("aten::mode")
def mode(self: ir.Value, dim: int = -1, keepdim: bool = False) -> tuple[ir.Value, ...]:
    """The value that occurs most often along an axis (the smallest of them) and the last place where it stands."""
    if axes.rank(self) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    position, count = axes.axis(self, dim), axes.rank(self)
    last = axes.move_last(self, position)
    ascending, _ = op.TopK(last, axes.size(self, position), axis=-1, largest=0, sorted=1)
    same = op.Equal(op.Unsqueeze(ascending, [count]), op.Unsqueeze(ascending, [count - 1]))
    often = op.ReduceSum(op.Cast(same, to=ir.DataType.INT64), [count], keepdims=0)
    value = op.GatherElements(ascending, op.ArgMax(often, axis=count - 1, keepdims=1), axis=-1)
    stands = op.Cast(op.Equal(last, value), to=ir.DataType.INT32)
    index = op.ArgMax(stands, axis=count - 1, keepdims=1, select_last_index=1)
    if not keepdim:
        return op.Squeeze(value, [count - 1]), op.Squeeze(index, [count - 1])
    return axes.move_back(value, position, count), axes.move_back(index, position, count)


@lowering("aten::masked_select")
def masked_select(self: ir.Value, mask: ir.Value) -> RecordedValue:
    """The elements where the mask holds, in order."""
    shape = op.Max(op.Shape(self), op.Shape(mask)) if axes.rank(self) == axes.rank(mask) else None
    if shape is None:
        data, chosen = op.Expand(self, op.Shape(mask)), op.Expand(mask, op.Shape(self))
        data = op.Expand(self, op.Shape(chosen))
    else:
        data, chosen = op.Expand(self, shape), op.Expand(mask, shape)
    return op.Compress(op.Reshape(data, [-1]), op.Reshape(chosen, [-1]))


@lowering("aten::unique_consecutive")
def unique_consecutive(
    self: ir.Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[RecordedValue, ...]:
    """The first of every run of equal elements (or of equal slices along an axis), each element's run, run lengths."""
    data = self if dim is not None or axes.rank(self) == 1 else _flattened(self)
    position = 0 if dim is None else axes.axis(self, dim)
    length = axes.size(data, position)
    later = op.Slice(data, [1], [2**62], [position])
    earlier = op.Slice(data, [0], [-1], [position])
    differs = op.Not(op.Equal(later, earlier))
    others = [other for other in range(axes.rank(data)) if other != position]
    if others:
        most = op.ReduceMax(op.Cast(differs, to=ir.DataType.INT32), others, keepdims=0)
        differs = op.Cast(most, to=ir.DataType.BOOL)
    first = op.Constant(value=ir.tensor([True]))
    begins = op.Concat(first, differs, axis=0)
    if not axes.never_empty(data, position):
        begins = op.Slice(begins, [0], length)
    values = op.Compress(data, begins, axis=position)
    inverse = op.Sub(op.CumSum(op.Cast(begins, to=ir.DataType.INT64), 0), 1)
    starts = op.Squeeze(op.NonZero(begins), [0])
    ends = op.Concat(op.Slice(starts, [1], [2**62]), op.Slice(length, [0], op.Shape(starts)), axis=0)
    if dim is None and return_inverse and axes.rank(self) != 1:
        inverse = op.Reshape(inverse, op.Shape(self), allowzero=1)
    nothing = op.Constant(value=ir.tensor([], dtype=ir.DataType.INT64))
    return values, inverse if return_inverse else nothing, op.Sub(ends, starts) if return_counts else nothing


@lowering("aten::_unique2")
def unique(
    self: ir.Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[ir.Value, ...]:
    """Every element once, in order, where each element went, and how often it is there; each NaN is one of its own."""
    if not axes.is_float(self):
        values, _, inverse, counts = op.Unique(self, sorted=1)
    else:  # the runtime loses what stands beside a NaN
        ascending, places = ordered(_flattened(self), 0, False)
        values, runs, counts = unique_consecutive(ascending, True, True)
        inverse = op.ScatterElements(runs, places, runs, axis=0)
    nothing = op.Constant(value=ir.tensor([], dtype=ir.DataType.INT64))
    inverse = op.Reshape(inverse, op.Shape(self), allowzero=1) if return_inverse else nothing
    return values, inverse, counts if return_counts else nothing


@lowering("aten::nonzero")
def nonzero(self: ir.Value) -> RecordedValue:
    """Where elements are not zero, one row each; a scalar gives a row without columns."""
    if self.dtype == ir.DataType.DOUBLE:  # for which onnxruntime has no kernel
        self = axes.shaped(op.Cast(self, to=ir.DataType.BOOL), self.shape)
    if axes.rank(self):
        return op.Transpose(op.NonZero(self), perm=[1, 0])
    found = op.Transpose(op.NonZero(op.Reshape(self, [1])), perm=[1, 0])
    return op.Slice(found, [0], [0], [1])
