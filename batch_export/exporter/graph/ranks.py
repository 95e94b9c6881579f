"""How many axes a value has, also where no shape was written onto it: from the nodes that compute it."""

from __future__ import annotations

import onnx_ir as ir

_DEPTH = 24
"""Nodes looked at one behind the other."""
_LIKE_FIRST = frozenset(
    (
        *("Cast", "CastLike", "Identity", "Neg", "Abs", "Not", "Sqrt", "Exp", "Log", "Sigmoid", "Tanh", "Relu", "Erf"),
        *("Floor", "Ceil", "Round", "Sin", "Cos", "Reciprocal", "Softmax", "LogSoftmax", "LayerNormalization", "Clip"),
        *("Transpose", "IsNaN", "IsInf", "Sign", "Slice", "CumSum", "Pad", "Trilu", "Concat", "Tile", "Tan", "Atan"),
        "DFT",
    )
)
_BROADCAST = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Where", "Equal", "Greater", "GreaterOrEqual"),
        *("Less", "LessOrEqual", "And", "Or", "Xor", "BitShift"),
    )
)


def rank_of(value: ir.Value | None, depth: int = _DEPTH) -> int | None:
    """The number of axes, None where it is not known."""
    if value is None:
        return None
    if value.shape is not None:
        return len(value.shape)
    producer = value.producer()
    if producer is None or producer.domain or not depth:
        return None
    name, inputs = producer.op_type, producer.inputs
    if name == "Shape":
        return 1
    first = rank_of(inputs[0], depth - 1) if inputs and name not in ("Reshape", "Expand", "ConstantOfShape") else None
    if name in _LIKE_FIRST:
        return first
    if name in _BROADCAST:
        ranks = [rank_of(one, depth - 1) for one in inputs]
        return None if None in ranks else max(rank for rank in ranks if rank is not None)
    if name == "MatMul":
        second = rank_of(inputs[1], depth - 1)
        return max(first, second) if first is not None and second is not None and min(first, second) > 1 else None
    if name in ("Unsqueeze", "Squeeze"):
        moved = _length(inputs[1]) if len(inputs) > 1 else None
        return None if first is None or moved is None else first + (moved if name == "Unsqueeze" else -moved)
    if name == "Reshape":
        return _length(inputs[1])
    if name.startswith("Reduce") and producer.attributes.get_int("keepdims", True):
        return first
    return None


def _length(value: ir.Value | None) -> int | None:
    """The number of elements of a list of axes or sizes."""
    if value is None or value.shape is None or len(value.shape) != 1 or not isinstance(value.shape[0], int):
        return None
    return value.shape[0]
