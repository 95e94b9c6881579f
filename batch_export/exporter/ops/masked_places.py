"""Places that a truth value for each element names, beside indices and whole axes (`y[:, mask, 0] = v`, `x[mask, i]`).

torch takes a mask of n axes for n vectors of indices; with these in its place, torchlib's `index` and `index_put` say
the rest. Of a scalar, whose mask is one truth value, there is nothing to scatter into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue
from batch_export.exporter.ops import axes
from batch_export.exporter.ops.marking import lowering


def _as_indices(index: ir.Value | None) -> list[ir.Value | None]:
    """What stands for one entry: itself, or for a mask the places along each of its axes, `int64[places]`."""
    if not isinstance(index, ir.Value) or index.dtype != ir.DataType.BOOL:
        return [index]
    if axes.rank(index) == 1:
        return [axes.shaped(op.Reshape(op.NonZero(index), [-1]), [None])]
    found = op.NonZero(index)
    return [axes.shaped(op.Gather(found, axis, axis=0), [None]) for axis in range(axes.rank(index))]


@lowering("aten::index.Tensor", "aten::_unsafe_index.Tensor")
def index(self: ir.Value, indices: Sequence[ir.Value | None]) -> RecordedValue:
    """The elements at the places that indices and masks name together."""
    from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

    given = list(indices)
    if sum(one is not None for one in given) > 1:
        given = [one for index in given for one in _as_indices(index)]
    read = cast("Callable[..., RecordedValue]", core.aten_index)
    return read(self, given)


@lowering("aten::index_put", "aten::_unsafe_index_put")
def index_put(
    self: ir.Value, indices: Sequence[ir.Value | None], values: ir.Value, accumulate: bool = False
) -> RecordedValue:
    """Writes (or adds) values at the places that indices and masks name together."""
    from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

    given = list(indices)
    mask = given[0] if len(given) == 1 else None
    of_all = mask is not None and mask.dtype == ir.DataType.BOOL and axes.rank(mask) == axes.rank(self)
    if mask is not None and of_all and (axes.rank(self) == 0 or _is_one(values)):
        return _put_one(self, mask, values, accumulate)
    if len(given) > 1:
        given = _together([one for index in given for one in _as_indices(index)])
    write = cast("Callable[..., RecordedValue]", core.aten_index_put)
    return write(self, given, values, accumulate=accumulate)


def _together(indices: list[ir.Value | None]) -> list[ir.Value | None]:
    """Indices of one shape, where one may name no place beside another that is to be repeated.

    torchlib takes the larger of two sizes, which is wrong of 0 and 1.
    """
    there = [one for one in indices if one is not None]
    sizes = [list(one.shape or ()) for one in there]
    listed = [size for shape in sizes for size in shape]
    is_known = all(isinstance(size, int) or size.value is not None for size in listed)
    if (is_known and all(shape == sizes[0] for shape in sizes)) or all(isinstance(size, int) for size in listed):
        return indices
    shape, unknown = op.Shape(op.Max(*there)), [None] * max(map(len, sizes))
    return [None if one is None else axes.shaped(op.Expand(one, shape), unknown) for one in indices]


def _is_one(values: ir.Value) -> bool:
    return values.shape is not None and all(size == 1 for size in values.shape)


def _put_one(self: ir.Value, mask: ir.Value, values: ir.Value, accumulate: bool) -> RecordedValue:
    """One value where a mask of all elements is true, and else the element; runtimes scatter into no scalar."""
    new = _first_or(values, self)
    return op.Where(mask, op.Add(self, new) if accumulate else new, self)


def _first_or(values: ir.Value, otherwise: ir.Value) -> ir.Value:
    """The only one of some values as a scalar, or a scalar where there are none."""
    if _is_one(values):
        return axes.scalar(values) if axes.rank(values) else values
    return op.Gather(op.Concat(axes.flat(values), axes.flat(otherwise), axis=0), 0, axis=0)


@lowering("aten::masked_scatter")
def masked_scatter(self: ir.Value, mask: ir.Value, source: ir.Value) -> RecordedValue:
    """The elements of a source in turn where a mask is true; tensor and mask are repeated to one shape."""
    if axes.rank(self) == 0 and axes.rank(mask) == 0:
        return op.Where(mask, _first_or(source, self), self)
    from onnxscript.function_libs.torch_lib.ops import core  # lazy: a second and more to import

    write = cast("Callable[..., RecordedValue]", core.aten_masked_scatter)
    return write(self, mask, source)
