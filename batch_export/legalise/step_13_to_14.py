"""Opset 13 -> 14: batch normalisation says whether it trains; before, it did when it had further outputs."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, is_read
from batch_export.legalise.writing import Writer


def _batch_normalisation(node: ir.Node, op: Writer) -> Result:
    del op
    if any(is_read(node, place) for place in range(1, len(node.outputs))):
        raise NoForm("BatchNormalization with statistics among its outputs")
    node.resize_outputs(1)
    return None


_of = examples_at(13)

RULES = {
    "BatchNormalization": Rule(
        _batch_normalisation,
        _of(
            "y = BatchNormalization (x, s, b, m, var)",
            "float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] var",
            "float[2,3,4] y",
        ),
        "statistics among the outputs",
    )
}
