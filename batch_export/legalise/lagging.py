"""Operators whose kernels a runtime lost with a later opset, written with what it has.

Arrives: a model at its opset. Leaves: the same model without them; the random operators, which need numbers of their
own, are in `random_numbers.py`.
"""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.nested import nodes_of
from batch_export.legalise.replacing import replace
from batch_export.legalise.step_24_to_23 import swish
from batch_export.legalise.writing import Writer

NO_SWISH = range(25, 28)
"""Opsets that ONNX Runtime 1.31 reads, and at which it has no kernel for Swish."""


def write_out(model: ir.Model, opset: int) -> int:
    """Replaces them in place.

    Returns:
        How many there were.
    """
    if opset not in NO_SWISH:
        return 0
    found = [node for node in nodes_of(model.graph) if node.domain == "" and node.op_type == "Swish"]
    for node in found:
        op = Writer()
        made = swish(node, op)
        assert isinstance(made, ir.Value)
        replace(node, op.nodes, [made])
    return len(found)
