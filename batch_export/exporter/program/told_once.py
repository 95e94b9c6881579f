"""An FX node is told in full once in a file: at the first of the ONNX nodes that it became. The others name it.

A recurrent cell becomes a dozen nodes, and its call is longer than they are. Their namespaces have the operator.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.exporter.graph.metadata import FX_NODE
from batch_export.legalise.nested import graphs_of


def shorten(model: ir.Model) -> None:
    """Changes, in place, the texts of FX nodes at all nodes but the first of those that stand beside one another."""
    for graph in graphs_of(model.graph):
        before = None
        for node in graph:
            text = node.metadata_props.get(FX_NODE)
            if text is None:
                continue
            if text == before:
                node.metadata_props[FX_NODE] = text.partition(" ")[0]
            before = text
