"""A matrix whose first axis is moved behind others and that is cast in front of a product: it is cast first.

onnxruntime's optimiser exchanges such a Transpose and Cast to take the Transpose into the MatMul, and ends the process
over it while it loads the file (`x.permute(1, 2, 0).float() @ w` of half precision). The same numbers come of a
Transpose behind the Cast.

Arrives: a model at its opset. Leaves: the same model without such a Cast.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.rules import attribute


def cast_first(model: ir.Model) -> int:
    """Changes the nodes in place.

    Returns:
        How many there were.
    """
    products = [node for node in nodes_of(model.graph) if node.domain == "" and node.op_type == "MatMul"]
    return sum(_cast_first(product, place) for product in products for place in range(2))


def _cast_first(product: ir.Node, place: int) -> bool:
    factor = product.inputs[place]
    cast = None if factor is None else factor.producer()
    turned = None if cast is None or not cast.inputs else cast.inputs[0]
    transpose = None if turned is None else turned.producer()
    if cast is None or transpose is None or (cast.op_type, transpose.op_type) != ("Cast", "Transpose"):
        return False
    order = list(attribute(transpose, "perm", ()))
    source = transpose.inputs[0]
    if len(order) < 3 or 0 not in order[-2:] or source is None or product.graph is None:
        return False
    first = ir.Node("", "Cast", [source], list(cast.attributes.values()))
    first.outputs[0].type, first.outputs[0].shape = cast.outputs[0].type, source.shape
    behind = ir.Node("", "Transpose", [first.outputs[0]], list(transpose.attributes.values()))
    behind.outputs[0].type, behind.outputs[0].shape = cast.outputs[0].type, cast.outputs[0].shape
    first.metadata_props.update(cast.metadata_props)
    behind.metadata_props.update(transpose.metadata_props)
    product.graph.insert_before(product, [first, behind])
    product.replace_input_with(place, behind.outputs[0])
    for node in (cast, transpose):
        made = node.outputs[0]
        if made.uses() or made.is_graph_output() or node.graph is None:
            break
        node.graph.remove(node, safe=True)
    return True
