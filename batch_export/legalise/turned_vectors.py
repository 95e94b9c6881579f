"""A matrix that is turned round in front of a vector: the vector stands in front of the matrix as it is.

onnxruntime's optimiser takes a Transpose of rows and columns into the MatMul behind it, and then multiplies by the
matrix as if it were none where the other factor is a vector: `x.t() @ v` is wrong without a word. `v @ x` is the same
numbers, is right there, and has no Transpose. The optimiser also moves a Transpose behind other operators first
(`x.t().relu() @ v`): a vector behind what may be turned is a matrix of one column, which is right there.

Arrives: a model at its opset. Leaves: the same model without such products.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.replacing import replace
from batch_export.legalise.rules import attribute
from batch_export.legalise.writing import Writer

_AXES_ARE_INPUTS = 13
"""The opset from which on Squeeze takes its axes as an input."""
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "LSTM", "GRU", "RNN"})
"""Operators that no Transpose is moved behind."""


def put_first(model: ir.Model) -> int:
    """Changes the nodes in place.

    Returns:
        How many products there were.
    """
    opset = model.opset_imports.get("", 0)
    products = [node for node in nodes_of(model.graph) if node.domain == "" and node.op_type == "MatMul"]
    return sum(_put_first(product, opset) for product in products)


def _put_first(product: ir.Node, opset: int) -> int:
    matrix, vector = product.inputs
    if matrix is None or vector is None or not _is_vector(product, matrix, vector):
        return 0
    way = _way_to_transpose(matrix)
    if not way:
        return _as_column(product, matrix, vector, opset) if _may_be_turned(matrix) else 0
    turned = way[-1]
    straight = turned.inputs[0]
    assert straight is not None
    cast = next((node for node in way if node.op_type == "Cast"), None)
    if cast is not None:
        again = ir.Node("", "Cast", [straight], list(cast.attributes.values()))
        again.outputs[0].type, again.outputs[0].shape = cast.outputs[0].type, straight.shape
        again.metadata_props.update(cast.metadata_props)
        assert product.graph is not None
        product.graph.insert_before(product, again)
        straight = again.outputs[0]
    product.replace_input_with(0, vector)
    product.replace_input_with(1, straight)
    for node in way:
        made = node.outputs[0]
        if made.uses() or made.is_graph_output() or node.graph is None:
            break
        node.graph.remove(node, safe=True)
    return 1


def _as_column(product: ir.Node, matrix: ir.Value, vector: ir.Value, opset: int) -> int:
    """The vector as a matrix of one column, which goes again behind the product."""
    op = Writer()
    made = op.MatMul(matrix, op.Reshape(vector, op.number([-1, 1])))
    made.type = product.outputs[0].type
    if opset >= _AXES_ARE_INPUTS:
        squeezed = op.Squeeze(made, op.number([-1]))
    elif matrix.shape is not None:
        squeezed = op.Squeeze(made, axes=[len(matrix.shape) - 1])
    else:
        return 0
    replace(product, op.nodes, [squeezed], "turned")
    return 1


def _may_be_turned(matrix: ir.Value) -> bool:
    """Whether a Transpose stands anywhere in front of a matrix behind the last product."""
    waiting, seen = [matrix], {matrix}
    while waiting:
        node = waiting.pop().producer()
        if node is None or node.domain != "" or node.op_type in _PRODUCTS:
            continue
        if node.op_type == "Transpose":
            return True
        new = [one for one in node.inputs if one is not None and one not in seen]
        seen.update(new)
        waiting += new
    return False


def _is_vector(product: ir.Node, matrix: ir.Value, vector: ir.Value) -> bool:
    if matrix.shape is not None and len(matrix.shape) < 2:
        return False
    if vector.shape is not None:
        return len(vector.shape) == 1
    made = product.outputs[0].shape
    return made is not None and matrix.shape is not None and len(made) == len(matrix.shape) - 1


def _way_to_transpose(matrix: ir.Value) -> list[ir.Node]:
    """The nodes from a matrix up to the Transpose that turned it round, which a Cast may follow; none elsewhere."""
    way: list[ir.Node] = []
    value: ir.Value | None = matrix
    while value is not None and (node := value.producer()) is not None and node.domain == "":
        way.append(node)
        if node.op_type == "Transpose":
            return way if _turns_round(node) else []
        if node.op_type not in ("Cast", "Identity") or [one.op_type for one in way].count("Cast") > 1:
            return []
        value = node.inputs[0]
    return []


def _turns_round(transpose: ir.Node) -> bool:
    """Whether it exchanges the last two axes, and leaves those in front of them."""
    order = list(attribute(transpose, "perm", ()))
    if not order:
        shapes = [one.shape for one in (*transpose.inputs, *transpose.outputs) if one is not None]
        return any(shape is not None and len(shape) == 2 for shape in shapes)
    count = len(order)
    return count > 1 and order == [*range(count - 2), count - 1, count - 2]
