"""How many sizes a list of sizes has within the body of an If, a Loop or a Scan.

Arrives: a model. Leaves: the same with shapes of such lists. onnx's inference reads no initialiser of an outer graph:
what a Reshape to `[1]` gives in a body has no known length for it, and a Resize by that is refused as one by no sizes.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.nested import graphs_of


def tell(model: ir.Model) -> int:
    """Writes the shapes of lists of whole numbers onto values of bodies; returns how many."""
    told = 0
    for graph in graphs_of(model.graph):
        if graph is model.graph:
            continue
        for node in graph:
            if node.domain or not node.outputs or node.outputs[0].shape is not None:
                continue
            length = _length(node)
            if length is not None and node.outputs[0].dtype in (ir.DataType.INT64, ir.DataType.INT32):
                node.outputs[0].shape = ir.Shape([length])
                told += 1
    return told


def _length(node: ir.Node) -> int | None:
    """The length of the list that a node gives; None where that is not known, or it gives no list."""
    if node.op_type == "Reshape" and len(node.inputs) == 2 and node.inputs[1] is not None:
        wanted = ir.convenience.get_const_tensor(node.inputs[1])
        if wanted is None or wanted.size != 1:
            return None
        size = int(wanted.numpy().reshape(-1)[0])
        return size if size > 0 else _count(node.inputs[0])
    if node.op_type == "Unsqueeze":
        return 1 if node.inputs[0] is not None and node.inputs[0].shape == () else None
    if node.op_type == "Concat":
        lengths = [
            _count(one) if one is not None and one.shape is not None and len(one.shape) == 1 else None
            for one in node.inputs
        ]
        return None if None in lengths else sum(one for one in lengths if one is not None)
    return None


def _count(value: ir.Value | None) -> int | None:
    """How many elements a value has."""
    if value is None or value.shape is None:
        return None
    count = 1
    for size in value.shape:
        if not isinstance(size, int):
            return None
        count *= size
    return count
