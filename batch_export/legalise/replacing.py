"""Nodes put in the place of another."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir


def insert_before(node: ir.Node, parts: Sequence[ir.Node]) -> None:
    """Puts nodes that compute inputs of a node in front of it, with names and metadata of their own."""
    _describe(node, parts)
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, list(parts))


def replace(node: ir.Node, parts: Sequence[ir.Node], made: Sequence[ir.Value]) -> None:
    """Puts nodes in the place of one; what they make takes its results' names, types, shapes and metadata.

    Args:
        node: what goes.
        parts: what comes, in order.
        made: what stands for the node's outputs, each made by one of the parts; the first ones may be enough.
    """
    _describe(node, parts)
    olds = list(node.outputs[: len(made)])
    for old, new in zip(olds, made, strict=True):
        new.type = old.type if old.type is not None else new.type
        new.shape = old.shape
        new.name = old.name
        new.metadata_props.update(old.metadata_props)
    graph = node.graph
    assert graph is not None
    ir.convenience.replace_nodes_and_values(graph, node, [node], list(parts), olds, list(made))


def _describe(node: ir.Node, parts: Sequence[ir.Node]) -> None:
    stem = node.outputs[0].name
    for index, part in enumerate(parts):
        part.name = f"{node.name}_part_{index}"
        part.metadata_props.update(node.metadata_props)
        for place, output in enumerate(part.outputs):
            output.name = f"{stem}_part_{index}_{place}"
