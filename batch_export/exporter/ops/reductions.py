"""Reductions over axes that may be empty: torch's mean of nothing is NaN and its `any` is False.

ONNX leaves a reduction over no elements undefined, and onnxruntime gives 0 for the mean and True for a maximum that is
cast to bool. The nodes that tell are recorded only where a reduced axis may be empty in eager: where it is free,
and not as long as a convolution's output.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes, exact_sums
from batch_export.exporter.ops.marking import lowering


def mean_over(self: ir.Value, wanted: Sequence[int] | None = None, *, keepdims: bool = False) -> RecordedValue:
    """The mean along axes (all of them when none is named), NaN where these hold no element."""
    named = () if wanted is None else (list(wanted),)
    if not _may_be_empty(self, wanted):
        return op.ReduceMean(self, *named, keepdims=int(keepdims))
    count = _count(self, wanted, keepdims=keepdims)
    if count is not None:  # 0 / 0 where there is none
        return op.Div(op.ReduceSum(self, *named, keepdims=int(keepdims)), op.CastLike(count, self))
    # 0 / 0 where nothing is reduced and 0 elsewhere; an input that other axes make empty has an empty result anyway.
    nothing = op.Div(axes.like(0.0, self), op.CastLike(op.Size(self), self))
    return op.Add(op.ReduceMean(self, *named, keepdims=int(keepdims)), nothing)


def _count(self: ir.Value, wanted: Sequence[int] | None, *, keepdims: bool) -> RecordedValue | None:
    """How many elements are summed, where one node says so; None elsewhere, and where sums overflow early."""
    if self.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE) or self.shape is None:
        return None
    rank = len(self.shape)
    if wanted is None or len({axis % rank for axis in wanted}) == rank:
        return op.Size(self)
    if len(wanted) != 1 or (rank == 1 and not keepdims):
        return None
    axis = wanted[0] % rank
    return op.Shape(self, start=axis, end=axis + 1)


def _may_be_empty(self: ir.Value, wanted: Sequence[int] | None) -> bool:
    if self.shape is None:
        return True
    reduced = range(len(self.shape)) if wanted is None else wanted
    return not all(axes.never_empty(self, axis) for axis in reduced)


def _listed(dim: Sequence[int] | int | None) -> list[int] | None:
    """The axes to reduce; None for all of them, which torch also means by an empty list."""
    listed = [dim] if isinstance(dim, int) else list(dim or ())
    return listed or None


@lowering("aten::mean", "aten::mean.dim")
def mean(self: ir.Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1) -> ir.Value:
    """`aten::mean`, in the dtype that is asked for."""
    wanted = self.dtype if dtype in (-1, None) else ir.DataType(dtype)
    data = self if self.dtype == wanted else axes.shaped(op.Cast(self, to=wanted), self.shape)
    return axes.from_zero(data) if axes.rank(self) == 0 else mean_over(data, _listed(dim), keepdims=keepdim)


@lowering("aten::sum", "aten::sum.dim_IntList")
def total(self: ir.Value, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: int = -1) -> ir.Value:
    """`aten::sum`, in the dtype that is asked for: int64 for integers and bool unless one is."""
    wanted = ir.DataType(dtype) if dtype not in (-1, None) else self.dtype if axes.is_float(self) else ir.DataType.INT64
    data = self if self.dtype == wanted else axes.shaped(op.Cast(self, to=wanted), self.shape)
    if axes.rank(self) == 0:
        return axes.from_zero(data)
    listed = _listed(dim)
    if exact_sums.may_be_large(data):
        return exact_sums.exact_sum(data, listed, keepdims=keepdim)
    named = () if listed is None else (listed,)
    return op.ReduceSum(data, *named, keepdims=int(keepdim))


@lowering("aten::any", "aten::any.dim", "aten::any.dims")
def any_true(self: ir.Value, dim: Sequence[int] | None = None, keepdim: bool = False) -> RecordedValue:
    """Whether one element at least is not zero (NaN is not)."""
    truth = self if self.dtype == ir.DataType.BOOL else op.Cast(self, to=ir.DataType.BOOL)
    if axes.rank(self) == 0 or (isinstance(dim, (list, tuple)) and not dim):  # no axes are none here, not all
        return op.Identity(truth)
    numbers = op.Cast(truth, to=ir.DataType.INT64)
    listed = _listed(dim)
    most = (
        op.ReduceMax(numbers, keepdims=int(keepdim))
        if listed is None
        else op.ReduceMax(numbers, listed, keepdims=int(keepdim))
    )
    return op.Greater(most, op.Constant(value_int=0))  # of no elements the maximum is the smallest number


@lowering("aten::_is_all_true")
def is_all_true(self: ir.Value) -> RecordedValue:
    """Whether no element is false; true where there is none."""
    return op.Equal(op.ReduceSum(op.Cast(op.Not(self), to=ir.DataType.INT64), keepdims=0), 0)


@lowering("aten::_is_any_true")
def is_any_true(self: ir.Value) -> RecordedValue:
    """Whether an element is true."""
    return op.Greater(op.ReduceSum(op.Cast(self, to=ir.DataType.INT64), keepdims=0), 0)
