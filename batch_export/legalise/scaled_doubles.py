"""A constant factor of float64 stays float64 beside a product in onnxruntime.

onnxruntime's optimiser takes a product with, or a quotient by, a constant number into the MatMul in front of it or
behind it, as an attribute, which is a float32 number: products of float64 are right to seven digits then. What goes
through a Concat of one input is not fused. A factor that float32 holds is left to the optimiser.

Arrives: a model at its opset. Leaves: the same model in which no such factor is taken into a product.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.scaled_twice import PRODUCTS, factor
from batch_export.legalise.writing import Writer


def keep_apart(model: ir.Model) -> int:
    """Changes the nodes in place.

    Returns:
        How many factors there were.
    """
    return sum(_joined_alone(node) for node in nodes_of(model.graph))


def _joined_alone(node: ir.Node) -> int:
    number = factor(node)
    if number is None or number.dtype != ir.DataType.DOUBLE or _is_single(number, node.op_type == "Div"):
        return 0
    scaled, given = node.outputs[0], next((one for one in node.inputs if one is not number), None)
    readers = [use.node for use in scaled.uses()]
    fused = [one for one in readers if one.domain == "" and one.op_type in PRODUCTS and one.graph is node.graph]
    if fused:  # what a product reads has axes
        joined = _joined(node, scaled, is_behind=True)
        for reader in fused:
            for place, value in enumerate(reader.inputs):
                if value is scaled:
                    reader.replace_input_with(place, joined)
    source = given.producer() if given is not None else None
    if (
        given is None
        or source is None
        or source.domain != ""
        or source.op_type != "MatMul"
        or not _has_axes(given, source)
    ):
        return int(bool(fused))
    node.replace_input_with(list(node.inputs).index(given), _joined(node, given, is_behind=False))
    return 1


def _has_axes(made: ir.Value, product: ir.Node) -> bool:
    """Whether a product is no single number, of which there is no Concat."""
    if made.shape is not None:
        return len(made.shape) > 0
    return any(one is not None and one.shape is not None and len(one.shape) > 1 for one in product.inputs)


def _joined(node: ir.Node, value: ir.Value, *, is_behind: bool) -> ir.Value:
    """A value behind a Concat of one input, which stands behind a node or in front of it."""
    op = Writer()
    joined = op.Concat(value, axis=0)
    joined.type, joined.shape = value.type, value.shape
    assert node.graph is not None
    put = node.graph.insert_after if is_behind else node.graph.insert_before
    put(node, op.nodes)
    return joined


def _is_single(number: ir.Value, is_divisor: bool) -> bool:
    """Whether float32 holds a constant factor, or the quotient by a divisor; not where the content is not there."""
    tensor = ir.convenience.get_const_tensor(number)
    if tensor is None:
        return False
    content = tensor.numpy()
    with np.errstate(all="ignore"):
        factors = 1.0 / content if is_divisor else content
        return bool(np.all(factors.astype(np.float32).astype(content.dtype) == factors))
