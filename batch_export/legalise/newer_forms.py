"""Operators that the latest opsets have whole, found where a graph spells them out.

Arrives: a model at its opset. Leaves: the same model, with SwiGLU from opset 28 on, CausalConvWithState and
LinearAttention from opset 27 on, and TensorScatter and Swish from opset 24 on, in the places of the nodes that mean the
same. Swish stays spelt out at opsets that ONNX Runtime (1.31) reads without a kernel for it, 25 to 27.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise import cache_writes, lagging, linear_attention
from batch_export.legalise.nested import nodes_of
from batch_export.legalise.replacing import replace
from batch_export.legalise.rules import attribute, given, known
from batch_export.legalise.writing import Writer

FIRST_CONVOLUTION = 27
FIRST_GATES = 28
FIRST_SWISH = 24


def recognise(model: ir.Model, opset: int) -> int:
    """Puts the operators in, in place.

    Args:
        model: whose nodes are at that opset.
        opset: of the file.

    Returns:
        How many there are now.
    """
    count = cache_writes.recognise(model) if opset >= cache_writes.FIRST_OPSET else 0
    count += linear_attention.recognise(model) if opset >= linear_attention.FIRST_OPSET else 0
    if opset >= FIRST_CONVOLUTION:
        count += sum(map(_convolution, _of_type(model, "Conv")))
    if opset >= FIRST_GATES:
        count += sum(map(_gate, _of_type(model, "Mul")))
    if opset >= FIRST_SWISH and opset not in lagging.NO_SWISH:
        count += sum(map(_swish, _of_type(model, "Mul")))
    return count


def _of_type(model: ir.Model, op_type: str) -> list[ir.Node]:
    return [node for node in nodes_of(model.graph) if node.domain == "" and node.op_type == op_type]


def _swished(node: ir.Node | None) -> ir.Value | None:
    """What `x` is where the node is `x * Sigmoid(x)`."""
    if node is None or node.domain or node.op_type != "Mul":
        return None
    for place in (0, 1):
        value, other = node.inputs[place], node.inputs[1 - place]
        maker = None if other is None else other.producer()
        if maker is not None and maker.op_type == "Sigmoid" and not maker.domain and maker.inputs[0] is value:
            return value
    return None


def _gate(node: ir.Node) -> bool:
    """`Swish(a) * b`, both of one shape."""
    if node.graph is None:
        return False
    for place in (0, 1):
        left, right = node.inputs[place], node.inputs[1 - place]
        inner = None if left is None else left.producer()
        gate = _swished(inner)
        if gate is None or left is None or right is None or len(left.uses()) != 1 or left.is_graph_output():
            continue
        if not _same_shape(gate, right) or inner is None or inner.graph is not node.graph:
            continue
        op = Writer()
        made = op.SwiGLU(gate, right)
        made.type = gate.type
        replace(node, op.nodes, [made])
        _drop(inner)
        return True
    return False


def _swish(node: ir.Node) -> bool:
    value = _swished(node) if node.graph is not None else None
    if value is None:
        return False
    sigmoid = next(one.producer() for one in node.inputs if one is not None and one is not value)
    op = Writer()
    made = op.Swish(value)
    replace(node, op.nodes, [made])
    _drop(sigmoid)
    return True


def _drop(node: ir.Node | None) -> None:
    """Removes a node that nothing reads any more, and what then nothing reads."""
    if node is None or node.graph is None or any(one.uses() or one.is_graph_output() for one in node.outputs):
        return
    before = [None if value is None else value.producer() for value in node.inputs]
    node.graph.remove(node, safe=True)
    for maker in before:
        if maker is not None and maker.op_type in ("Sigmoid", "Mul"):
            _drop(maker)


def _same_shape(one: ir.Value, other: ir.Value) -> bool:
    """Whether both shapes are known, in names at least, and equal."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return False
    return all(
        left == right and (isinstance(left, int) or left.value is not None)
        for left, right in zip(one.shape, other.shape, strict=True)
    )


def _convolution(node: ir.Node) -> bool:
    """A depthwise convolution along the last of three axes that looks back only, and keeps the length."""
    value, weight = given(node, 0), given(node, 1)
    if value is None or weight is None or weight.shape is None or len(weight.shape) != 3 or node.graph is None:
        return False
    channels, one, size = weight.shape
    if one != 1 or not isinstance(size, int) or attribute(node, "group", 1) != channels:
        return False
    if any(step != 1 for name in ("strides", "dilations") for step in attribute(node, name, [1])):
        return False
    before, after = attribute(node, "pads", [0, 0])
    if before != size - 1 or attribute(node, "auto_pad", "NOTSET") != "NOTSET":
        return False
    last = node if after == 0 else _cut(node)
    if last is None or not _same_shape(value, last.outputs[0]):
        return False
    op = Writer()
    inputs = [value, weight, given(node, 2)]
    made, state = op.several("CausalConvWithState", inputs if inputs[2] is not None else inputs[:2], 2)
    sizes = [*list(value.shape or ())[:2], size - 1]
    state.type, state.shape = value.type, ir.Shape(sizes)
    replace(last, op.nodes, [made])
    if last is not node:
        _drop(node)
    return True


def _cut(node: ir.Node) -> ir.Node | None:
    """The Slice that alone reads a convolution, and keeps the first of the last axis' elements."""
    output = node.outputs[0]
    users = [use.node for use in output.uses()]
    if len(users) != 1 or output.is_graph_output() or users[0].op_type != "Slice" or users[0].graph is not node.graph:
        return None
    start, along, step = (known(given(users[0], place)) for place in (1, 3, 4))
    if start is None or along is None or start.reshape(-1).tolist() != [0]:
        return None
    if along.reshape(-1).tolist() not in ([2], [-1]) or (given(users[0], 4) is not None and step != 1):
        return None
    return users[0]
