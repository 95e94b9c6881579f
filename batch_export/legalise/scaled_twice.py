"""What is scaled twice in front of products stays there for both in onnxruntime.

onnxruntime's optimiser takes a product with, or a quotient by, a constant number into the MatMul that reads it. Where
another such number stands behind the first one, it loses count of the readers: it takes the first product away while
the first MatMul still reads it, and the file does not load. What goes through a Concat of one input is not fused.

Arrives: a model at its opset. Leaves: the same model in which a value that a constant number has scaled, and that a
MatMul reads, reaches its next constant factor through a Concat.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.writing import Writer

PRODUCTS = frozenset({"MatMul", "Transpose"})
"""A Transpose is taken into the MatMul that reads it before the factors are."""


def keep_apart(model: ir.Model) -> int:
    """Changes the nodes in place.

    Returns:
        How many values there were.
    """
    return sum(_joined_alone(node) for node in list(nodes_of(model.graph)) if factor(node) is not None)


def _joined_alone(node: ir.Node) -> int:
    scaled = node.outputs[0]
    readers = [use.node for use in scaled.uses()]
    again = [reader for reader in readers if factor(reader) is not None and reader.graph is node.graph]
    if not again or not any(reader.domain == "" and reader.op_type in PRODUCTS for reader in readers):
        return 0
    op = Writer()
    joined = op.Concat(scaled, axis=0)
    joined.type, joined.shape = scaled.type, scaled.shape
    assert node.graph is not None
    node.graph.insert_after(node, op.nodes)
    for reader in again:
        reader.replace_input_with(list(reader.inputs).index(scaled), joined)
    return 1


def factor(node: ir.Node) -> ir.Value | None:
    """The constant number that a node multiplies by, or divides by; None where it does neither."""
    if node.domain != "" or node.op_type not in ("Mul", "Div"):
        return None
    return next((value for value in node.inputs[node.op_type == "Div" :] if _is_number(value)), None)


def _is_number(value: ir.Value | None) -> bool:
    if value is None or value.is_graph_input():
        return False
    tensor = ir.convenience.get_const_tensor(value)
    shape = value.shape if tensor is None and value.is_initializer() else getattr(tensor, "shape", None)
    return shape is not None and all(size == 1 for size in shape)
