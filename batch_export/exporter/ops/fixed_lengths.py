"""Results whose length is asked for, whatever the data: places of elements, and a tensor's memory in another shape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


@lowering("aten::nonzero_static")
def nonzero_static(self: ir.Value, *, size: Size, fill_value: int = -1) -> RecordedValue:
    """The places of elements that are not zero, `int64[size, rank]`: cut off, or filled up behind the last one."""
    truth = self if self.dtype == ir.DataType.BOOL else op.Cast(self, to=ir.DataType.BOOL)
    count = max(axes.rank(self), 1)
    found = op.Transpose(op.NonZero(axes.at_least_1d(truth)), perm=[1, 0])
    length = op.Reshape(size, [1]) if isinstance(size, ir.Value) else op.Constant(value_ints=[size])
    if axes.rank(self) == 0:
        count, found = 0, op.Slice(found, [0], [0], [1])
    rest = op.Expand(op.Constant(value_int=fill_value), op.Concat(length, [count], axis=0))
    return op.Slice(op.Concat(found, rest, axis=0), [0], length, [0])


def _places(size: Sequence[Size], stride: Sequence[Size], offset: Size) -> np.ndarray:
    if not all(isinstance(one, int) for one in (*size, *stride, offset)):
        raise TranslationError(
            "as_strided_scatter with sizes that are known only when the model runs", next_step="use slice_scatter"
        )
    places = np.array(offset, dtype=np.int64)
    for length, step in zip(size, stride, strict=True):
        assert isinstance(length, int)
        places = places[..., None] + np.arange(length, dtype=np.int64) * step
    return places


@lowering("aten::as_strided_scatter", "prims::as_strided_scatter")
def as_strided_scatter(
    self: ir.Value, src: ir.Value, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> RecordedValue:
    """The tensor with elements at strided places replaced; it lies in memory in its own order."""
    places = _places(size, stride, storage_offset or 0).reshape(-1)
    if len(set(places.tolist())) < places.size:
        raise TranslationError(
            "as_strided_scatter writes several elements to one place", next_step="write to each place once"
        )
    flat = op.ScatterElements(axes.flat(self), op.Constant(value=ir.tensor(places)), axes.flat(src), axis=0)
    return op.Reshape(flat, op.Shape(self), allowzero=1)


@lowering("aten::resize")
def resize(self: ir.Value, size: Sequence[int], *, memory_format: int | None = None) -> RecordedValue:
    """The first elements in another shape; a larger one would hold what happens to be in memory."""
    known = self.shape is not None and all(isinstance(one, int) and one >= 0 for one in (*self.shape, *size))
    if not known or math.prod(size) > math.prod(self.shape):  # type: ignore[arg-type]
        raise TranslationError(
            "resize to more elements than there are, or to a number of them that is known only when the model runs",
            next_step="use reshape, slices or padding",
        )
    return op.Reshape(op.Slice(axes.flat(self), [0], [math.prod(size)], [0]), list(size), allowzero=1)


@lowering("aten::resize_as")
def resize_as(self: ir.Value, the_template: ir.Value, *, memory_format: int | None = None) -> RecordedValue:
    """The first elements in the shape of another tensor."""
    sizes = [axes.fixed_size(the_template, dim) for dim in range(axes.rank(the_template))]
    return resize(self, [-1 if size is None else size for size in sizes])
