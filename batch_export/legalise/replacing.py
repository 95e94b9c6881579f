"""Nodes put in the place of another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir


def insert_before(node: ir.Node, parts: Sequence[ir.Node], label: str) -> None:
    """Puts nodes that compute inputs of a node in front of it, with metadata, and names that hold the label."""
    _describe(node, parts, label)
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, list(parts))


def replace(node: ir.Node, parts: Sequence[ir.Node], made: Sequence[ir.Value], label: str = "part") -> None:
    """Puts nodes in the place of one; what they make takes its results' names, types, shapes and metadata.

    Args:
        node: what goes.
        parts: what comes, in order.
        made: what stands for the node's outputs, each made by one of the parts; the first ones may be enough.
        label: what the names of the parts hold; another each time that a node is changed.
    """
    _describe(node, parts, label)
    olds = list(node.outputs[: len(made)])
    for old, new in zip(olds, made, strict=True):
        new.type = old.type if old.type is not None else new.type
        new.shape = old.shape
        new.name = old.name
        new.metadata_props.update(old.metadata_props)
    graph = node.graph
    assert graph is not None
    ir.convenience.replace_nodes_and_values(graph, node, [node], list(parts), olds, list(made))


def _describe(node: ir.Node, parts: Sequence[ir.Node], label: str) -> None:
    _name(parts, f"{node.name or node.op_type}_{label}", f"{node.outputs[0].name}_{label}", node.metadata_props)


def _name(parts: Iterable[ir.Node], node_stem: str, value_stem: str, metadata: Mapping[str, str]) -> None:
    """Names nodes and what they make, those of their bodies too."""
    for index, part in enumerate(parts):
        part.name = f"{node_stem}_{index}"
        part.metadata_props.update(metadata)
        for place, output in enumerate(part.outputs):
            output.name = f"{value_stem}_{index}_{place}"
        bodies = [(name, one.as_graph()) for name, one in part.attributes.items() if one.type == ir.AttributeType.GRAPH]
        for name, body in bodies:
            stem = f"{value_stem}_{index}_{name}"
            body.name = stem
            for place, formal in enumerate(body.inputs):
                formal.name = f"{stem}_{place}"
            _name(body, f"{part.name}_{name}", stem, metadata)
