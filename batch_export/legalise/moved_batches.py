"""A Transpose in front of a product with float16 weights stays a node of its own in onnxruntime.

onnxruntime's optimiser fuses a Transpose that moves the first axis inside into the MatMul behind it, and then ends the
process where it makes float32 of that product's float16 weights. What goes through a Concat of one input is not fused.

Arrives: a model at its opset. Leaves: the same model in which no such Transpose is taken into a product.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.rules import attribute
from batch_export.legalise.writing import Writer

_OF_WEIGHTS = frozenset({"Cast", "Identity", "Transpose"})


def keep_apart(model: ir.Model) -> int:
    """Changes the nodes in place.

    Returns:
        How many there were.
    """
    changed = 0
    for node in nodes_of(model.graph):
        if node.domain == "" and node.op_type == "MatMul":
            left, right = node.inputs
            if left is not None and right is not None:
                changed += _joined_alone(node, left, right) + _joined_alone(node, right, left)
    return changed


def _joined_alone(product: ir.Node, moved: ir.Value, other: ir.Value) -> int:
    """Puts a Concat of one input behind the Transpose of an operand, where the other operand is a float16 weight."""
    reader = product
    cast = moved.producer()
    if cast is not None and cast.domain == "" and cast.op_type == "Cast" and cast.inputs[0] is not None:
        reader, moved = cast, cast.inputs[0]
    if (
        moved.dtype not in (None, ir.DataType.FLOAT16)
        or not _moves_the_first_axis_inside(moved)
        or not _is_a_weight(other)
    ):
        return 0
    op = Writer()
    joined = op.Concat(moved, axis=0)
    joined.type, joined.shape = moved.type, moved.shape
    assert reader.graph is not None
    reader.graph.insert_before(reader, op.nodes)
    for index, value in enumerate(reader.inputs):
        if value is moved:
            reader.replace_input_with(index, joined)
    return 1


def _moves_the_first_axis_inside(value: ir.Value) -> bool:
    """Whether it is made by a Transpose that only puts the first axis in front of, or behind, the last one."""
    node = value.producer()
    if node is None or node.domain != "" or node.op_type != "Transpose":
        return False
    order = list(attribute(node, "perm", ()))
    count = len(order)
    rest = list(range(1, count))
    return count > 2 and order in ([*rest[:-1], 0, rest[-1]], [*rest, 0])


def _is_a_weight(value: ir.Value) -> bool:
    """Whether it is an initializer of float16, or made of one alone."""
    while True:
        node = value.producer()
        if node is None:
            return value.is_initializer() and value.dtype == ir.DataType.FLOAT16
        source = node.inputs[0] if node.inputs else None
        if node.domain != "" or node.op_type not in _OF_WEIGHTS or source is None:
            return node.op_type == "Constant" and value.dtype == ir.DataType.FLOAT16
        value = source
