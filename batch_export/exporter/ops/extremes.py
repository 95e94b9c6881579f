"""The largest and the smallest element along axes, and their places.

onnxruntime compares integers of 64 bits wrongly in ReduceMax and ReduceMin, as it does in Max (see `clamping.py`), and
rightly in ArgMax and ArgMin: integers that may not fit into 32 bits are picked by their place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import onnx_ir as ir

from batch_export.exporter.graph.magnitude import fits_in_32_bits
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


class _Way(NamedTuple):
    """ONNX's operators for one direction."""

    reduce: Callable[..., RecordedValue]
    find: Callable[..., RecordedValue]


def _largest() -> _Way:
    return _Way(op.ReduceMax, op.ArgMax)


def _smallest() -> _Way:
    return _Way(op.ReduceMin, op.ArgMin)


@lowering("aten::amax", "aten::max")
def amax(self: ir.Value, dim: Sequence[int] = (), keepdim: bool = False) -> RecordedValue:
    """The largest element along axes (all of them when none is named)."""
    return _extreme(_largest(), self, dim, keepdim)


@lowering("aten::amin", "aten::min")
def amin(self: ir.Value, dim: Sequence[int] = (), keepdim: bool = False) -> RecordedValue:
    """The smallest element along axes (all of them when none is named)."""
    return _extreme(_smallest(), self, dim, keepdim)


@lowering("aten::max.dim")
def max_and_place(self: ir.Value, dim: int, keepdim: bool = False) -> tuple[RecordedValue, RecordedValue]:
    """The largest element along an axis, and its place."""
    return _with_place(_largest(), self, dim, keepdim)


@lowering("aten::min.dim")
def min_and_place(self: ir.Value, dim: int, keepdim: bool = False) -> tuple[RecordedValue, RecordedValue]:
    """The smallest element along an axis, and its place."""
    return _with_place(_smallest(), self, dim, keepdim)


@lowering("aten::argmax")
def argmax(self: ir.Value, dim: int | None = None, keepdim: bool = False) -> RecordedValue:
    """The place of the largest element along an axis, or among all of them."""
    return _place(_largest(), self, dim, keepdim)


@lowering("aten::argmin")
def argmin(self: ir.Value, dim: int | None = None, keepdim: bool = False) -> RecordedValue:
    """The place of the smallest element along an axis, or among all of them."""
    return _place(_smallest(), self, dim, keepdim)


def _place(way: _Way, self: ir.Value, dim: int | None, keepdim: bool) -> RecordedValue:
    count = axes.rank(self)
    if count == 0:
        return op.Constant(value_int=0)
    if dim is not None:
        return way.find(self, axis=dim, keepdims=int(keepdim))
    found = way.find(axes.flat(self), axis=0, keepdims=0)
    return op.Reshape(found, [1] * count) if keepdim else found


def _is_wide(self: ir.Value) -> bool:
    return self.dtype == ir.DataType.INT64 and not fits_in_32_bits(self)


def _extreme(way: _Way, self: ir.Value, dim: Sequence[int], keepdim: bool) -> RecordedValue:
    if axes.rank(self) == 0:
        return op.Identity(self)
    if _is_wide(self):
        return _by_places(way, self, dim, keepdim)
    is_bool = self.dtype == ir.DataType.BOOL
    data = op.Cast(self, to=ir.DataType.UINT8) if is_bool else self
    result = way.reduce(data, list(dim), keepdims=int(keepdim)) if len(dim) else way.reduce(data, keepdims=int(keepdim))
    return op.Cast(result, to=ir.DataType.BOOL) if is_bool else result


def _by_places(way: _Way, self: ir.Value, dim: Sequence[int], keepdim: bool) -> RecordedValue:
    found = self if len(dim) else op.Reshape(self, [-1])
    for axis in dim or (0,):
        found = op.GatherElements(found, way.find(found, axis=axis, keepdims=1), axis=axis)
    if len(dim):
        return op.Identity(found) if keepdim else op.Squeeze(found, list(dim))
    return op.Reshape(found, [1] * axes.rank(self) if keepdim else [])


def _with_place(way: _Way, self: ir.Value, dim: int, keepdim: bool) -> tuple[RecordedValue, RecordedValue]:
    if axes.rank(self) == 0:
        return op.Identity(self), op.Constant(value_int=0)
    if not _is_wide(self):
        return _extreme(way, self, [dim], keepdim), way.find(self, axis=dim, keepdims=int(keepdim))
    place = way.find(self, axis=dim, keepdims=1)
    found = op.GatherElements(self, place, axis=dim)
    if keepdim:
        return found, place
    return op.Squeeze(found, [dim]), op.Squeeze(place, [dim])
