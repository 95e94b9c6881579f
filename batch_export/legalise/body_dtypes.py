"""Dtypes that If, Loop and Scan hand into and out of their bodies.

A node with bodies arrives, and the dtypes that the file's opset lets it carry. Each operand and each result of a
narrower dtype is handed over in a wider one, between two casts: one outside, one in the body. What the bodies compute,
and operands of any other dtype (a Loop's counter), stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from batch_export.legalise.nested import bodies_of

_NOT_RESULTS = {"If": 0, "Loop": 1, "Scan": 0}
"""Operator -> how many of a body's first results are none of the node's (Loop: whether it goes on)."""


def has(node: ir.Node) -> bool:
    """Whether the node is one of those."""
    return node.domain == "" and node.op_type in _NOT_RESULTS


def widen(node: ir.Node, wider: Mapping[ir.DataType, ir.DataType]) -> None:
    """Hands narrow values over in wider dtypes, in place.

    Args:
        node: an If, a Loop or a Scan.
        wider: dtype that the node does not carry -> the one to carry in its place.
    """
    for index, value in enumerate(node.inputs):
        if value is not None and isinstance(value.type, ir.TensorType) and value.type.dtype in wider:
            _widen_operand(node, index, value, wider[value.type.dtype])
    for index, output in enumerate(node.outputs):
        if isinstance(output.type, ir.TensorType) and output.type.dtype in wider:
            dtype = wider[output.type.dtype]
            for body in bodies_of(node):
                _widen_result(body, index + _NOT_RESULTS[node.op_type], dtype)
            _narrow_again(node, output, dtype)


def _cast(value: ir.Value, dtype: ir.DataType, name: str, like: ir.Node) -> ir.Node:
    """A Cast that is in no graph yet."""
    made = ir.Value(name=name, type=ir.TensorType(dtype), shape=value.shape)
    cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", dtype.value)], outputs=[made], name=f"{name}_Cast")
    cast.metadata_props.update(like.metadata_props)
    return cast


def _widen_operand(node: ir.Node, index: int, value: ir.Value, dtype: ir.DataType) -> None:
    narrow = value.dtype
    assert narrow is not None
    assert node.graph is not None
    (body,) = bodies_of(node)
    formal = body.inputs[index]
    outside = _cast(value, dtype, f"{formal.name}_start", node)
    node.graph.insert_before(node, outside)
    node.replace_input_with(index, outside.outputs[0])
    inside = _cast(formal, narrow, f"{formal.name}_narrow", node)
    ir.convenience.replace_all_uses_with(formal, inside.outputs[0], replace_graph_outputs=True)
    inside.replace_input_with(0, formal)
    formal.type = ir.TensorType(dtype)
    first = next(iter(body), None)
    if first is None:
        body.append(inside)
    else:
        body.insert_before(first, inside)


def _widen_result(body: ir.Graph, index: int, dtype: ir.DataType) -> None:
    result = body.outputs[index]
    last = result.producer()
    cast = _cast(result, dtype, f"{result.name}_wide{index}", last if last is not None else next(iter(body)))
    body.append(cast)
    body.outputs[index] = cast.outputs[0]


def _narrow_again(node: ir.Node, output: ir.Value, dtype: ir.DataType) -> None:
    narrow, name = output.dtype, output.name
    assert narrow is not None
    assert node.graph is not None
    back = _cast(output, narrow, f"{name}_narrow", node)
    ir.convenience.replace_all_uses_with(output, back.outputs[0], replace_graph_outputs=True)
    back.replace_input_with(0, output)
    output.type = ir.TensorType(dtype)
    output.name, back.outputs[0].name = f"{name}_wide", name
    node.graph.insert_after(node, back)
