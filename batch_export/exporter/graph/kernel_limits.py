"""What onnxruntime's CPU kernels get wrong or refuse beside dtypes, and what is recorded in its place.

Arrives: an operator's name, its inputs and attributes. Leaves: other axes, what a size of 0 means, or the dtype to cast
a result to; nothing is recorded here. Source: onnxruntime 1.31 on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph.ranks import rank_of
from batch_export.exporter.graph.recorded_value import Array

_UNSATURATED = (ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT8E4M3FNUZ, ir.DataType.FLOAT8E5M2FNUZ)
_HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def axes_from_the_front(name: str, inputs: Sequence[ir.Value | None], axes: Array | int | None) -> Array | int | None:
    """The axes of a reduction counted from the front: of an input without elements an axis of -1 would be kept.

    Args:
        name: the operator.
        inputs: its inputs; the first one's rank counts.
        axes: the axes as they are known, None where they are not.

    Returns:
        The axes to name, None where there is nothing to change.
    """
    if not name.startswith("Reduce") and name not in ("ArgMax", "ArgMin"):
        return None
    if axes is None or not inputs or not np.any(np.asarray(axes) < 0):
        return None
    rank = rank_of(inputs[0])
    return None if rank is None else axes % max(1, rank)


def may_copy_a_size(shape: ir.Value | None, known: Callable[[ir.Value | None], Array | None]) -> bool:
    """Whether a Reshape to this shape may mean its 0 as "the size that was there", or holds a -1.

    A shape that is computed means what it says: where an axis has no elements, its size is 0, also as a number among
    others that are computed, by whichever operator (a root, rounded; a choice). A shape that is known as a whole is
    left as it is, and so is one that is given from outside.

    Args:
        shape: the second input of the Reshape.
        known: gives the numbers of a value where these are known.
    """
    producer = None if shape is None or known(shape) is not None else shape.producer()
    if producer is None or producer.domain:
        return True
    return any(_is_a_mark(part, known) for part in producer.inputs[_PASSED_ON.get(producer.op_type, slice(0))])


_PASSED_ON: Mapping[str, slice] = {
    "Concat": slice(None),
    "Where": slice(1, 3),
    **dict.fromkeys(("Reshape", "Cast", "Unsqueeze", "Squeeze", "Identity", "Expand"), slice(1)),
}
"""Operators that pass numbers on as they are -> which of their inputs; what others give is computed."""


def _is_a_mark(part: ir.Value | None, known: Callable[[ir.Value | None], Array | None]) -> bool:
    numbers = known(part)
    return may_copy_a_size(part, known) if numbers is None else bool((numbers < 0).any())


def beyond_the_largest(name: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a Cast with what becomes of numbers beyond the largest of the new dtype, as in torch.

    In float8_e4m3fn that is the largest number, which is ONNX's default; in its other dtypes of eight bits infinity or
    NaN, and what was infinite stays so.
    """
    if name == "Cast":
        dtype: ir.DataType | None = ir.DataType(attributes["to"])
    elif name == "CastLike" and len(inputs) > 1 and inputs[1] is not None:
        dtype = inputs[1].dtype
    else:
        return attributes
    return {**attributes, "saturate": 0} if dtype in _UNSATURATED else attributes


def drawn_in_half(name: str, inputs: Sequence[ir.Value | None], attributes: Mapping[str, Any]) -> ir.DataType | None:
    """float16 or bfloat16 where a random operator would draw in it: there are kernels for float32 and float64 only."""
    if not name.startswith("Random"):
        return None
    like = inputs[0].dtype if inputs and inputs[0] is not None else None
    dtype = ir.DataType(attributes["dtype"]) if attributes.get("dtype") else like
    return dtype if dtype in _HALF else None


def loses_digits(
    name: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any],
    known: Callable[[ir.Value | None], Array | None],
) -> bool:
    """Whether a Fourier transform of float32 has to be computed in float64.

    Where the length is no power of two, the kernel goes by way of products with numbers whose angles it computes in the
    dtype of the input from the squares of positions: of 24000 numbers the third digit of the result is wrong. In
    float64 it takes up to 1.5 times as long.

    Args:
        name: the operator.
        inputs: its inputs.
        attributes: its attributes.
        known: gives the numbers of a value where these are known.
    """
    if name not in ("DFT", "STFT") or not inputs or inputs[0] is None or inputs[0].dtype != ir.DataType.FLOAT:
        return False
    place = 3 if name == "STFT" else 1
    given = inputs[place] if len(inputs) > place else None
    content = None if given is None else known(given)
    if content is not None:
        length: int | None = int(content.reshape(()))
    elif name == "DFT" and (given is None or _is_size_of(given, inputs[0])):
        length = _size_along(inputs[0], int(attributes.get("axis", 1)), known)
    else:
        length = None
    return length is None or length & (length - 1) != 0


def axis_of_other_length(
    name: str,
    inputs: Sequence[ir.Value | None],
    attributes: Mapping[str, Any],
    known: Callable[[ir.Value | None], Array | None],
) -> int | None:
    """The axis of a Fourier transform whose length in the result has to be said in the file; None where there is none.

    Where numbers do not tell it, onnx infers the length that goes in, also of one half or of another length, and
    onnxruntime then has the result written to memory of the wrong size, or refuses to.

    Args:
        name: the operator.
        inputs: its inputs.
        attributes: its attributes.
        known: gives the numbers of a value where these are known.
    """
    if name != "DFT" or not inputs or inputs[0] is None:
        return None
    given, axis = inputs[1] if len(inputs) > 1 else None, int(attributes.get("axis", 1))
    if given is not None and known(given) is not None:
        return None
    producer = inputs[0].producer()
    whole = producer.inputs[0] if producer is not None and producer.op_type == "Cast" else inputs[0]
    if given is not None and (whole is None or not _is_size_of(given, whole)):
        return axis
    is_half = bool(attributes.get("onesided"))
    return axis if is_half and _size_along(whole, axis, known) is None else None


def _is_size_of(given: ir.Value, value: ir.Value) -> bool:
    """Whether a number is taken from the shape of a value, as torchlib does of the axis that it transforms."""
    producer = given.producer()
    if producer is not None and producer.op_type == "Squeeze" and producer.inputs[0] is not None:
        producer = producer.inputs[0].producer()
    return producer is not None and producer.op_type == "Shape" and producer.inputs[0] is value


def _size_along(value: ir.Value | None, axis: int, known: Callable[[ir.Value | None], Array | None]) -> int | None:
    """The size of an axis where it is known, also behind what no shape is written on: further axes and casts."""
    if value is None:
        return None
    if value.shape is not None:
        size = value.shape[axis]
        return size if isinstance(size, int) else None
    producer = value.producer()
    if producer is None or not producer.inputs:
        return None
    if producer.op_type == "Unsqueeze":
        added = known(producer.inputs[1])
        rank = rank_of(producer.inputs[0])
        if added is None or rank is None or axis < 0:
            return None
        count = rank + len(added)
        places = {int(place) % count for place in added}
        return _size_along(producer.inputs[0], axis - sum(place < axis for place in places), known)
    if producer.op_type in ("Cast", "Mul", "Div"):  # by a number: what the sums are divided by
        return _size_along(producer.inputs[0], axis, known)
    if producer.op_type == "DFT" and producer.attributes.get_int("axis", 1) != axis:
        return _size_along(producer.inputs[0], axis, known)
    return None
