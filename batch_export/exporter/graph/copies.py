"""Copies of values, nodes and models: as onnx-ir's own clones, and made in a fraction of their time.

Arrives: parts of a model. Leaves: the same parts as objects of their own, on tensors, attributes, types and shapes
that both share: whoever changes the shape of a value gives it another one. onnx-ir copies each part in a call of its
own that describes itself should it fail, and makes an empty store of notes for each value that it asks for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from batch_export.legalise.nested import bodies_of


def value_like(value: ir.Value, name: str | None) -> ir.Value:
    """A value of the same type, shape and notes, which nothing makes and nothing reads yet."""
    made = ir.Value(name=name, type=value.type, shape=value.shape)
    _note(value, made)
    return made


def node_like(
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    outputs: Sequence[ir.Value],
    name: str | None,
    properties: Mapping[str, str],
) -> ir.Node:
    """A node that does the same with other values; notes that are not for the file stay behind."""
    made = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        overload=node.overload,
        outputs=outputs,
        version=node.version,
        name=name,
        metadata_props={**node.metadata_props, **properties} if properties else dict(node.metadata_props),
    )
    made.attributes.data.update(node.attributes.data)  # they were looked at one by one when the first node was made
    return made


def model_like(model: ir.Model) -> ir.Model:
    """A copy of a model; bodies, functions and parts that are rare are onnx-ir's to copy."""
    graph = model.graph
    if not is_plain(model):
        return model.clone()
    known: dict[ir.Value | None, ir.Value | None] = {None: None}

    def copied(value: ir.Value) -> ir.Value:
        found = known.get(value)
        if found is None:
            found = known[value] = value_like(value, value.name)
            found.const_value, found.doc_string = value.const_value, value.doc_string
        return found

    inputs = [copied(value) for value in graph.inputs]
    initializers = [copied(value) for value in graph.initializers.values()]
    nodes = []
    for node in graph:
        read = [known[value] for value in node.inputs]
        made = node_like(node, read, [copied(value) for value in node.outputs], node.name, {})
        made.doc_string = node.doc_string
        _note_all(node, made)
        nodes.append(made)
    outputs = [copied(value) for value in graph.outputs]
    copy = ir.Graph(
        inputs,
        outputs,
        nodes=nodes,
        initializers=initializers,
        doc_string=graph.doc_string,
        opset_imports=dict(graph.opset_imports),
        name=graph.name,
    )
    copy.metadata_props.update(graph.metadata_props)
    _note_all(graph, copy)
    return ir.Model(
        copy,
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        metadata_props=dict(model.metadata_props),
        device_configurations=model.device_configurations,
    )


def is_plain(model: ir.Model) -> bool:
    """Whether a model has no functions, no bodies and no parts that are rare."""
    return not model.functions and not any(_is_rare(node) for node in model.graph)


def _is_rare(node: ir.Node) -> bool:
    return bool(node.device_configurations) or next(bodies_of(node), None) is not None


def _note(one: ir.Value, other: ir.Value) -> None:
    if one.metadata_props:
        other.metadata_props.update(one.metadata_props)
    _note_all(one, other)


def _note_all(one: Any, other: Any) -> None:
    """Copies what passes noted.

    NOTE: `meta` makes an empty store where there is none; onnx-ir's private attribute says whether there is one.
    """
    if getattr(one, "_metadata", one):
        other.meta.update(one.meta)
        for key in one.meta._invalid_keys:
            other.meta.invalidate(key)
