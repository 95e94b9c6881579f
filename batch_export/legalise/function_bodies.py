"""ONNX's own definition of an operator in terms of others, written out as nodes.

Arrives: a node whose schema has a function body. Leaves: the body's nodes between the node's inputs and outputs, with
the node's attributes in the places where the body refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    body, attributes = _body(node, opset)
    inputs = [*node.inputs, *[None] * (len(body.input) - len(node.inputs))]
    values: dict[str, ir.Value | None] = {"": None}
    values.update(zip(body.input, inputs, strict=True))
    for inner in body.node:
        _append(inner, op, values, attributes)
    found = [values[name] for name in body.output[: len(node.outputs)]]
    return [op.Identity(value) if value in node.inputs else value for value in found if value is not None]


def _body(node: ir.Node, opset: int) -> tuple[onnx.FunctionProto, Mapping[str, onnx.AttributeProto]]:
    schema = onnx.defs.get_schema(node.op_type, opset)
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
    attributes = {
        name: one.default_value for name, one in schema.attributes.items() if one.default_value.name
    } | {one.name: one for one in proto.attribute}
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


def _append(
    inner: onnx.NodeProto,
    op: Writer,
    values: dict[str, ir.Value | None],
    attributes: Mapping[str, onnx.AttributeProto],
) -> None:
    given: dict[str, Any] = {}
    for one in inner.attribute:
        proto = one
        if one.ref_attr_name:
            if one.ref_attr_name not in attributes:
                continue
            proto = onnx.AttributeProto()
            proto.CopyFrom(attributes[one.ref_attr_name])
            proto.name = one.name
        if proto.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            raise NoForm(f"a body with {inner.op_type}")
        given[proto.name] = ir.serde.deserialize_attribute(proto)
    inputs: Sequence[ir.Value | None] = [values[name] for name in inner.input]
    outputs = op.several(inner.op_type, inputs, len(inner.output), **given)
    values.update(zip(inner.output, outputs, strict=True))
