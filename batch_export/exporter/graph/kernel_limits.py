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
    others that are computed. A shape that is known as a whole is left as it is.

    Args:
        shape: the second input of the Reshape.
        known: gives the numbers of a value where these are known.
    """
    producer = None if shape is None or known(shape) is not None else shape.producer()
    if producer is None or producer.domain:
        return True
    if producer.op_type in ("Concat", "Reshape", "Cast", "Unsqueeze", "Squeeze", "Identity"):
        parts = producer.inputs if producer.op_type == "Concat" else producer.inputs[:1]
        return any(_is_a_mark(part, known) for part in parts)
    return producer.op_type not in ("Shape", "Slice", "Gather", "Add", "Sub", "Mul", "Div", "Mod", "Max", "Min")


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
