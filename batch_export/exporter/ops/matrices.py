"""Matrices as the translations of linear algebra take them.

Matrices are `float[..., n, m]`; leading axes are merged into one, `float[batch, n, m]`, and restored in the result. A
number of rows or columns is an int where the graph fixes it, so that short loops over it are written out, and an
`int64[]` value elsewhere. Nothing here translates an operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.ops import axes, loops


class Matrices:
    """Matrices of one value with merged leading axes.

    Attributes:
        data: `float[batch, rows, columns]`.
        rows, columns: numbers, or `int64[]` values.
    """

    def __init__(self, value: ir.Value) -> None:
        self._lead = op.Shape(value, end=-2) if axes.rank(value) != 2 else None
        self.rows, self.columns = length_of(value, -2), length_of(value, -1)
        sizes = op.Shape(value, start=-2)
        batch = [1] if self._lead is None else op.ReduceProd(self._lead, keepdims=1)
        self.data = op.Reshape(value, op.Concat(batch, sizes, axis=0), allowzero=1)
        axes.shaped(self.data, [None, axes.fixed_size(value, -2), axes.fixed_size(value, -1)])

    def restored(self, value: ir.Value, trailing: int = 2) -> RecordedValue:
        """A result over the merged axis, with the leading axes as they were."""
        if self._lead is None:
            return op.Squeeze(value, [0])
        sizes = op.Shape(value, start=1) if trailing else None
        return op.Reshape(value, self._lead if sizes is None else op.Concat(self._lead, sizes, axis=0), allowzero=1)


def length_of(value: ir.Value, dim: int) -> int | RecordedValue:
    """The size of an axis: a number where the graph fixes it, else `int64[]`."""
    fixed = axes.fixed_size(value, dim)
    return fixed if fixed is not None else op.Squeeze(axes.size(value, dim), [0])


def smaller(left: Size, right: Size) -> int | RecordedValue:
    """The smaller of two sizes."""
    return min(left, right) if isinstance(left, int) and isinstance(right, int) else op.Min(left, right)


def column_at(data: ir.Value, index: ir.Value) -> RecordedValue:
    """`float[batch, rows, 1]`."""
    return op.Unsqueeze(op.Gather(data, index, axis=2), [2])


def row_at(data: ir.Value, index: ir.Value) -> RecordedValue:
    """`float[batch, 1, columns]`."""
    return op.Unsqueeze(op.Gather(data, index, axis=1), [1])


def columns_of(right: ir.Value) -> RecordedValue:
    """The number of columns as `int64[]`."""
    return op.Squeeze(op.Shape(right, start=2, end=3), [0])


def numbers_along(length: Size, shape: Sequence[int]) -> RecordedValue:
    """0, 1, ... in a shape that broadcasts along one axis of matrices."""
    return op.Reshape(loops.positions(length), list(shape))


def zeros_like(data: ir.Value) -> RecordedValue:
    """Zeros in the shape and dtype of a value."""
    return axes.shaped(op.Expand(op.CastLike(0.0, data), op.Shape(data)), data.shape)


def with_axes_swapped(transposed: ir.Value) -> RecordedValue:
    """Rows as columns: `float[batch, n, m]` to `float[batch, m, n]`."""
    swapped = op.Transpose(transposed, perm=[0, 2, 1])
    if transposed.shape is not None:
        batch, rows, columns = transposed.shape
        axes.shaped(swapped, [batch, columns, rows])
    return swapped


def merged_vectors(value: ir.Value) -> RecordedValue:
    """Vectors with merged leading axes: `[batch, n]`."""
    lead = op.ReduceProd(op.Shape(value, end=-1), keepdims=1) if axes.rank(value) > 1 else [1]
    merged = op.Reshape(value, op.Concat(lead, op.Shape(value, start=-1), axis=0), allowzero=1)
    axes.shaped(merged, [None, None])
    return merged


def identity(data: ir.Value, length: Size) -> RecordedValue:
    """`float[batch, length, length]` unit matrices for the batch of `data`."""
    same = op.Equal(numbers_along(length, [-1, 1]), numbers_along(length, [1, -1]))
    unit = op.Unsqueeze(op.CastLike(same, data), [0])
    size = [length, length] if isinstance(length, int) else [op.Reshape(length, [1]), op.Reshape(length, [1])]
    spread = op.Concat(op.Shape(data, end=1), *([part] if isinstance(part, int) else part for part in size), axis=0)
    unit = op.Expand(unit, spread)
    axes.shaped(unit, [None, *([length] * 2 if isinstance(length, int) else [None] * 2)])
    return unit


def right_side(A: ir.Value, B: ir.Value) -> tuple[ir.Value, bool]:  # noqa: N803
    """The right sides as matrices, and whether they were vectors."""
    is_vector = axes.rank(B) == 1 or (axes.rank(A) - 1 == axes.rank(B) and _same_shape(A, B))
    if not is_vector:
        return B, False
    assert B.shape is not None
    return axes.shaped(op.Unsqueeze(B, [-1]), [*B.shape, 1]), True


def in_one_batch(*several: ir.Value) -> Sequence[ir.Value]:
    """Matrices whose leading axes are broadcast against one another; those that have the same ones are as they were."""
    leads = [list(one.shape)[:-2] if one.shape is not None else None for one in several]
    if all(lead == leads[0] and _is_known(lead) for lead in leads):
        return several
    shape: ir.Value = op.Constant(value=ir.tensor([], dtype=ir.DataType.INT64))
    for one in several:
        shape = op.Shape(op.Expand(op.Expand(op.Constant(value_int=0), shape), op.Shape(one, end=-2)))
    spread = [op.Expand(one, op.Concat(shape, op.Shape(one, start=-2), axis=0)) for one in several]
    count = max(axes.rank(one) for one in several) - 2
    return [
        axes.shaped(made, [*[None] * count, *list(one.shape or ())[-2:]])
        for made, one in zip(spread, several, strict=True)
    ]


def _is_known(lead: Sequence[int | ir.SymbolicDim] | None) -> bool:
    return lead is not None and all(isinstance(one, int) or one.value is not None for one in lead)


def _same_shape(A: ir.Value, B: ir.Value) -> bool:  # noqa: N803
    assert A.shape is not None
    assert B.shape is not None
    return list(A.shape)[:-1] == list(B.shape)


def first_failure(matrices: Matrices, bad: ir.Value) -> RecordedValue:
    """LAPACK's error codes: the first place, from 1, at which an element of the diagonal is bad; 0 where none is.

    Args:
        matrices: what was factored.
        bad: `bool[batch, n, m]`; only the diagonal is looked at.

    Returns:
        `int32[...]`.
    """
    rows, columns = (op.Squeeze(op.Shape(bad, start=axis, end=axis + 1), [0]) for axis in (1, 2))
    places = numbers_along(rows, [1, -1, 1])
    beyond = op.Add(rows, 1)
    here = op.And(bad, op.Equal(places, numbers_along(columns, [1, 1, -1])))
    failed = op.Where(here, op.Add(places, 1), beyond)
    for axis in (2, 1):
        none = op.Expand(beyond, op.Concat(op.Shape(bad, end=axis), [1], axis=0))  # so that no axis is empty
        failed = op.ReduceMin(op.Concat(failed, none, axis=axis), [axis], keepdims=0)
    code = op.Where(op.Equal(failed, beyond), op.Constant(value_int=0), failed)
    return op.Cast(matrices.restored(code, 0), to=ir.DataType.INT32)
