"""Opset 17 -> 18: axes of reductions become an input, and a Split without lengths names the number of its parts."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import Result, Rule, attribute, given, no_longer
from batch_export.legalise.writing import Writer


def _reduce(node: ir.Node, op: Writer) -> Result:
    axes = attribute(node, "axes")
    no_longer(node, "axes")
    if axes:
        node.resize_inputs(2)
        node.replace_input_with(1, op.number(list(axes)))
    return None


def _split(node: ir.Node, op: Writer) -> Result:
    del op
    if given(node, 1) is None:
        node.attributes["num_outputs"] = ir.AttrInt64("num_outputs", len(node.outputs))
    return None


_of = examples_at(17)
_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"),
)

RULES = {
    **{
        name: Rule(_reduce, _of(f"y = {name} <axes = [1]> (positive)", "float[2,3,4] positive", "float[2,1,4] y"))
        for name in _REDUCTIONS
    },
    "Split": Rule(_split, _of("a, b = Split <axis = 1> (x)", "float[2,6] x", "float[2,3] a, float[2,3] b")),
}
