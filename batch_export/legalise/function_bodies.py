"""ONNX's own definition of an operator in terms of others, written out as nodes.

Arrives: a node whose schema has a function body. Leaves: the body's nodes between the node's inputs and outputs, with
the node's attributes in the places where the body refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir

from batch_export.legalise.rules import NoForm, Result, Rule
from batch_export.legalise.writing import Writer


def written_out(opset: int, example: str, unless: str = "") -> Rule:
    """A rule that writes the body of the operator as it stands in the schema of `opset`."""

    def write(node: ir.Node, op: Writer) -> Result:
        return expand(node, op, opset)

    return Rule(write, example, unless, again=True)


def expand(node: ir.Node, op: Writer, opset: int) -> list[ir.Value]:
    """The outputs of a node, computed by the body that its schema has at an opset.

    Raises:
        NoForm: the schema has no body for these inputs.
    """
    proto, attributes = _body(node, opset)
    del proto.output[len(node.outputs) :]
    body = ir.serde.deserialize_function(proto)
    given = [*node.inputs, *[None] * (len(body.inputs) - len(node.inputs))]
    for formal, value in zip(body.inputs, given, strict=True):
        for use in list(formal.uses()):
            use.node.replace_input_with(use.idx, value)
    for inner in body.graph.all_nodes():
        _fill_in(inner, attributes)
    results = list(body.outputs[: len(node.outputs)])
    nodes = list(body.graph)
    body.outputs.clear()
    body.graph.remove(nodes)
    op.take(nodes)
    return results


def _fill_in(inner: ir.Node, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    """Puts values in the place of references to the attributes of the operator whose body this is."""
    for name, one in list(inner.attributes.items()):
        if one.ref_attr_name is None:
            continue
        del inner.attributes[name]
        if one.ref_attr_name in attributes:
            value = onnx.AttributeProto()
            value.CopyFrom(attributes[one.ref_attr_name])
            value.name = name
            inner.attributes[name] = ir.serde.deserialize_attribute(value)


def _body(node: ir.Node, opset: int) -> tuple[onnx.FunctionProto, Mapping[str, onnx.AttributeProto]]:
    schema: Any = onnx.defs.get_schema(node.op_type, opset)  # its stubs know nothing of bodies
    proto = ir.serde.serialize_node(node)
    kinds = [_kind(value) for value in node.inputs]
    serialized = b""
    if schema.has_context_dependent_function:
        version = max(one for one in schema.context_dependent_function_opset_versions if one <= opset)
        serialized = schema.get_context_dependent_function_with_opset_version(
            version, proto.SerializeToString(), [kind.SerializeToString() for kind in kinds]
        )
    elif schema.has_function:
        version = max(one for one in schema.function_opset_versions if one <= opset)
        serialized = schema.get_function_with_opset_version(version)
    if not serialized:
        raise NoForm(f"{node.op_type} with these inputs")
    body = onnx.FunctionProto()
    body.ParseFromString(serialized)
    attributes = {name: one.default_value for name, one in schema.attributes.items() if one.default_value.name} | {
        one.name: one for one in proto.attribute
    }
    return body, attributes


def _kind(value: ir.Value | None) -> onnx.TypeProto:
    kind = onnx.TypeProto()
    if value is None or value.type is None:
        return kind
    if isinstance(value.type, ir.TensorType):
        kind.tensor_type.elem_type = value.type.dtype.value
        if value.shape is not None:
            for size in value.shape:
                dim = kind.tensor_type.shape.dim.add()
                if isinstance(size, int):
                    dim.dim_value = size
    return kind
