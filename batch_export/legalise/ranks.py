"""How many axes a value has that no shape is written on, by the nodes that it comes from.

What rules write has dtypes and no shapes: its number of axes follows from the nearest values that have one.
"""

from __future__ import annotations

import onnx_ir as ir

_DEEPEST = 40

_AS_THE_FIRST = frozenset(
    {
        "Cast",
        "Clip",
        "CumSum",
        "Dropout",
        "Hardmax",
        "Identity",
        "LogSoftmax",
        "Pad",
        "Slice",
        "Softmax",
        "Split",
        "Transpose",
        "Trilu",
        "BatchNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "Not",
        "ScatterElements",
        "ScatterND",
        "GatherElements",
        "Resize",
        "LRN",
        "TopK",
    }
)
_REPEATING = frozenset(
    {
        "Abs",
        "Acos",
        "Acosh",
        "Add",
        "And",
        "Asin",
        "Asinh",
        "Atan",
        "Atanh",
        "Ceil",
        "Cos",
        "Cosh",
        "Div",
        "Elu",
        "Equal",
        "Erf",
        "Exp",
        "Floor",
        "Greater",
        "GreaterOrEqual",
        "HardSigmoid",
        "IsInf",
        "IsNaN",
        "LeakyRelu",
        "Less",
        "LessOrEqual",
        "Log",
        "Max",
        "Mean",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "Or",
        "Pow",
        "PRelu",
        "Reciprocal",
        "Relu",
        "Round",
        "Selu",
        "Sigmoid",
        "Sign",
        "Sin",
        "Sinh",
        "Softplus",
        "Softsign",
        "Sqrt",
        "Sub",
        "Sum",
        "Tan",
        "Tanh",
        "ThresholdedRelu",
        "Where",
        "Xor",
    }
)
"""Operators of one element at a time: the result has as many axes as the input that has most."""


def axes_of(value: ir.Value | None, depth: int = 0) -> int | None:
    """The number of axes, or None where it does not follow from what is known."""
    if value is None or value.shape is not None:
        return None if value is None or value.shape is None else len(value.shape)
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is not None:
        return len(tensor.shape)
    node = value.producer()
    if node is None or node.domain or depth > _DEEPEST or not node.inputs:
        return None
    if node.op_type in _REPEATING:
        counts = [axes_of(one, depth + 1) for one in node.inputs if one is not None]
        return None if None in counts else max(count for count in counts if count is not None)
    if node.op_type in ("Shape", "Range", "NonZero", "Flatten"):
        return 1 if node.op_type in ("Shape", "Range") else 2
    if node.op_type in ("Reshape", "Expand", "ConstantOfShape"):
        return _asked_for(node, depth)
    return _counted(node, axes_of(node.inputs[0], depth + 1), depth)


def _asked_for(node: ir.Node, depth: int) -> int | None:
    """As many as the shape that is asked for has sizes; Expand never takes one away."""
    sizes = node.inputs[-1]
    if sizes is None or sizes.shape is None or len(sizes.shape) != 1 or not isinstance(sizes.shape[0], int):
        tensor = None if sizes is None else ir.convenience.get_const_tensor(sizes)
        length = None if tensor is None else tensor.size
    else:
        length = sizes.shape[0]
    if node.op_type != "Expand" or length is None:
        return length
    before = axes_of(node.inputs[0], depth + 1)
    return None if before is None else max(before, length)


def _counted(node: ir.Node, first: int | None, depth: int) -> int | None:
    """By the first input's number, where the operator keeps it or changes it by a known one."""
    if first is None:
        return None
    axes = node.attributes.get("axes")
    if node.op_type in _AS_THE_FIRST:
        return first
    if node.op_type == "Concat":
        return first
    if node.op_type.startswith("Reduce") or node.op_type in ("ArgMax", "ArgMin"):
        keeps = node.attributes.get("keepdims")
        if keeps is None or keeps.as_int():
            return first
        if node.op_type.startswith("Arg"):
            return first - 1
        return first - len(axes.as_ints()) if axes is not None else None
    if node.op_type in ("Squeeze", "Unsqueeze") and axes is not None:
        return first + len(axes.as_ints()) * (1 if node.op_type == "Unsqueeze" else -1)
    second = axes_of(node.inputs[1], depth + 1) if len(node.inputs) > 1 else None
    if second is None:
        return None
    if node.op_type == "Gather":
        return first + second - 1
    return max(first, second) if node.op_type == "MatMul" and min(first, second) > 1 else None
