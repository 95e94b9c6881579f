"""Ranks, axes and sizes as translations need them: numbers where they are known, ONNX scalars where they are not.

Arrives: values that carry a shape, and torch's axis numbers. Leaves: axes from 0 on and sizes as `int64[1]`. Nothing
here translates an operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import onnx_ir as ir
from onnxscript import evaluator

from batch_export.errors import TranslationError
from batch_export.exporter.graph.operators import op
from batch_export.exporter.graph.recorded_value import RecordedValue, Size
from batch_export.exporter.graph.recorder import Recorder

_Value = TypeVar("_Value", bound=ir.Value)
Dim = int | str | ir.SymbolicDim | None
"""A size as a shape has it: a number, a name, or None for what is not known."""


def rank(value: ir.Value) -> int:
    """The number of axes.

    Raises:
        TranslationError: if it is not known.
    """
    if value.shape is None:
        raise TranslationError(
            f"the number of axes of {value.name} is not known", next_step="report the operator that made this value"
        )
    return len(value.shape)


def axis(value: ir.Value, dim: int) -> int:
    """An axis counted from the front; axis 0 of a scalar is allowed, as in torch."""
    return int(dim) % max(rank(value), 1)


def size(value: ir.Value, dim: int) -> RecordedValue:
    """The size of an axis as `int64[1]`."""
    position = axis(value, dim)
    return op.Shape(value, start=position, end=position + 1)


def fixed_size(value: ir.Value, dim: int) -> int | None:
    """The size of an axis where the graph fixes it."""
    if value.shape is None:
        return None
    found = value.shape[dim]
    return found if isinstance(found, int) else None


_REFUSE_NOTHING = ("Conv", "MaxPool", "AveragePool")
"""Operators whose output has elements along its spatial axes: for none eager raises an error, and so do runtimes."""
_FAR = 256
"""Nodes above a value that are looked at."""


def never_empty(value: ir.Value, dim: int) -> bool:
    """Whether an axis has elements wherever the model runs.

    Its size is fixed, or that of a convolution further up, or no caller may give less than 1 for it.
    """
    if value.shape is None:
        return False
    size = value.shape[dim]
    if isinstance(size, int):
        return size > 0
    current = evaluator.default()
    if isinstance(current, Recorder) and size.value in current.never_empty:
        return True
    front, seen = [value], {value}
    for one in front:
        node = one.producer()
        if node is None or size.value is None or len(front) > _FAR:
            continue
        if node.op_type in _REFUSE_NOTHING and not node.domain and one.shape is not None and size in one.shape.dims[2:]:
            return True
        above = [given for given in node.inputs if given is not None and given not in seen]
        seen.update(above)
        front += above
    return False


def shaped(value: _Value, dims: Iterable[Dim] | None) -> _Value:
    """The value, described where nothing is known of its shape yet; None stands for an unknown size."""
    if dims is not None and value.shape is None:
        value.shape = ir.Shape(list(dims))
    return value


def scalar(value: ir.Value) -> RecordedValue:
    """`int64[1]` as `int64[]`."""
    return op.Reshape(value, op.Constant(value=ir.tensor([], dtype=ir.DataType.INT64)))


def reshaped(value: ir.Value, parts: Sequence[ir.Value]) -> RecordedValue:
    """The value in a shape of parts, each `int64[n]`: a size of 0 is one, and no mark to copy.

    Such a Reshape takes no -1, which runtimes refuse where another size is 0, and onnxruntime leaves it as it is.
    """
    shape = op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]
    known = shape.const_value
    return op.Reshape(value, shape, allowzero=int(known is None or 0 in known.numpy()))


def flat(value: ir.Value) -> RecordedValue:
    """All elements in one axis."""
    return op.Reshape(value, [-1])


def at_least_1d(value: ir.Value) -> ir.Value:
    """A scalar as a vector of one element; any other value as it is."""
    if rank(value):
        return value
    return shaped(op.Reshape(value, [1]), [1])


def at_least_0d(value: ir.Value) -> ir.Value:
    """A number that became a value: its shape is that of a scalar."""
    if value.shape is None:
        value.shape = ir.Shape([])
    return value


def move_last(value: ir.Value, dim: int) -> ir.Value:
    """The value with an axis moved to the end; `move_back` undoes it."""
    count, position = rank(value), axis(value, dim)
    if position == count - 1:
        return value
    return op.Transpose(value, perm=[*(other for other in range(count) if other != position), position])


def move_back(value: ir.Value, dim: int, count: int) -> ir.Value:
    """Puts the last of `count` axes back to where `move_last` took it from."""
    position = dim % count
    if position == count - 1:
        return value
    order = list(range(count - 1))
    order.insert(position, count - 1)
    return op.Transpose(value, perm=order)


def like(number: float | int | bool, value: ir.Value) -> RecordedValue:
    """A number as a scalar of a value's dtype; integers beyond the dtype wrap around, as they do in torch."""
    assert value.dtype is not None
    if value.dtype.is_integer() and isinstance(number, int):
        number = int(np.asarray(number).astype(value.dtype.numpy()))
    return op.Constant(value=ir.tensor(number, dtype=value.dtype))


def from_zero(value: ir.Value) -> RecordedValue:
    """Sums of one number each: they begin at 0.0, so that -0.0 does not come out."""
    return op.Add(value, like(0.0, value)) if is_float(value) else op.Identity(value)


def is_float(value: ir.Value) -> bool:
    """Whether the elements are floating point numbers."""
    return value.dtype is not None and value.dtype.is_floating_point()


def padded(
    value: ir.Value,
    before: Sequence[Size],
    after: Sequence[Size],
    listed: Sequence[int],
    fill: ir.Value | None,
    mode: str = "constant",
) -> RecordedValue:
    """Elements added at both ends of the listed axes.

    Every axis is written out: onnxruntime moves a Transpose past a Pad that names its axes without renaming these.
    """
    amounts: list[list[Size]] = [[0] * rank(value), [0] * rank(value)]
    for side, given in zip(amounts, (before, after), strict=True):
        for dim, amount in zip(listed, given, strict=True):
            side[axis(value, dim)] = amount
    return op.Pad(value, [*amounts[0], *amounts[1]], fill, mode=mode)
