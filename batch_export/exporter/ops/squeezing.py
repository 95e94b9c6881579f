"""Axes of size 1 taken away, and slices written back where the source is smaller than the slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import onnx_ir as ir
from onnxscript.values import TracedOnnxFunction

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


def _without(self: ir.Value, wanted: Sequence[int]) -> RecordedValue:
    """Torch takes an axis away only where it is 1; one of free size was captured as being something else."""
    gone = sorted({position for position in wanted if axes.fixed_size(self, position) == 1})
    return op.Squeeze(self, gone) if gone else op.Identity(self)


@lowering("aten::squeeze")
def squeeze(self: ir.Value) -> RecordedValue:
    """All axes of size 1 taken away."""
    return _without(self, range(axes.rank(self)))


@lowering("aten::squeeze.dim", "aten::squeeze.dims")
def squeeze_axes(self: ir.Value, dim: int | Sequence[int]) -> RecordedValue:
    """Named axes taken away where they are of size 1."""
    if axes.rank(self) == 0:
        return op.Identity(self)
    return _without(self, [axes.axis(self, one) for one in ([dim] if isinstance(dim, int) else dim)])


@lowering("aten::squeeze", "aten::squeeze.dim", "aten::squeeze.dims", is_complex=True)
def squeeze_complex(self: ir.Value, dim: int | Sequence[int] | None = None) -> RecordedValue:
    """The same of complex numbers, whose pairs are no axis of torch's."""
    count = axes.rank(self) - 1
    if count == 0:
        return op.Identity(self)
    listed = range(count) if dim is None else [dim] if isinstance(dim, int) else dim
    return _without(self, [one % count for one in listed])


def _is_smaller(src: ir.Value, count: int, whole: Sequence[axes.Dim]) -> bool:
    """Whether the source has fewer axes than the place that it is written to, or an axis of 1 to be repeated."""
    if axes.rank(src) != count:
        return True
    return any(size == 1 and other != 1 for size, other in zip(list(src.shape or ()), whole, strict=True))


@lowering("aten::slice_scatter")
def slice_scatter(
    self: ir.Value, src: ir.Value, dim: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1
) -> RecordedValue:
    """Writes a source over a slice; a source that is smaller is repeated, as a copy into the slice does it."""
    from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

    position, count = axes.axis(self, dim), axes.rank(self)
    is_smaller = _is_smaller(src, count, list(self.shape or ()))
    # a free axis may turn out shorter than a slice of fixed length, and has a place for less of the source then
    if is_smaller or (axes.fixed_size(src, position) is not None and axes.fixed_size(self, position) is None):
        bounds = [
            value if isinstance(value, ir.Value) else op.Constant(value_int=default if value is None else value)
            for value, default in ((start, 0), (end, 2**62), (step, 1))
        ]
        first, last, stride = (op.Reshape(value, [1]) for value in bounds)
        place = axes.shaped(op.Slice(self, first, last, [position], stride), [None] * count)
        if is_smaller:
            src = op.Expand(src, op.Shape(place))
        else:
            src = op.Slice(src, [0], axes.size(place, position), [position])
        axes.shaped(src, [None] * count)
    write: Callable[..., RecordedValue] = cast("TracedOnnxFunction", core.aten_slice_scatter).func
    return write(self, src, position, start, end, step)


@lowering("aten::select_scatter")
def select_scatter(self: ir.Value, src: ir.Value, dim: int, index: Size) -> RecordedValue:
    """Writes a source over one place of an axis; a source that is smaller is repeated."""
    position, count = axes.axis(self, dim), axes.rank(self)
    place = op.Reshape(index, [1]) if isinstance(index, ir.Value) else op.Constant(value_ints=[index])
    shape = [op.Shape(self, start=0, end=position), [1], op.Shape(self, start=position + 1, end=count)]
    parts = [part for part, keep in zip(shape, (position > 0, True, position + 1 < count), strict=True) if keep]
    row = [size for axis, size in enumerate(list(self.shape or ())) if axis != position]
    if _is_smaller(src, count - 1, row):
        rest = [part for part in parts if part != [1]]
        src = op.Expand(src, op.Concat(*rest, axis=0)) if rest else op.Reshape(src, op.Constant(value_ints=[1][:0]))
    wanted = op.Concat(*parts, axis=0)
    places = op.Expand(op.Reshape(place, [1] * count), wanted)
    return op.ScatterElements(self, places, op.Unsqueeze(src, [position]), axis=position)
