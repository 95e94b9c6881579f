"""The graphs of a model and their nodes, those in bodies too: as onnx-ir gives them, without a look at every attribute.

A graph arrives, lists leave, so whoever walks them may change the graph meanwhile. Of ONNX's own operators only a few
have bodies; any other domain's may.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

WITH_BODIES = frozenset({"If", "Loop", "Scan", "SequenceMap"})
"""ONNX's own operators that have bodies."""


def graphs_of(graph: ir.Graph) -> list[ir.Graph]:
    """Returns a graph and the bodies in it, each before those in it."""
    found = [graph]
    for node in graph:
        if node.op_type in WITH_BODIES or node.domain:
            for body in bodies_of(node):
                found += graphs_of(body)
    return found


def has(graph: ir.Graph, op_type: str) -> bool:
    """Returns whether there is a node of one of ONNX's own operators in a graph or in the bodies in it."""
    return any(node.op_type == op_type and not node.domain for node in nodes_of(graph))


def nodes_of(graph: ir.Graph) -> list[ir.Node]:
    """Returns the nodes of a graph in order, each before those in its bodies."""
    found = []
    for node in graph:
        found.append(node)
        if node.op_type in WITH_BODIES or node.domain:
            for body in bodies_of(node):
                found += nodes_of(body)
    return found


def bodies_of(node: ir.Node) -> Iterator[ir.Graph]:
    """Yields the graphs among a node's attributes."""
    if not node.domain and node.op_type not in WITH_BODIES:
        return
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()
