"""Opset 8 -> 7: repeats by multiplication, and extremes of two of one shape."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, first, known, needed
from batch_export.legalise.writing import Writer

_MULTIPLIED = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64})


def _expand(node: ir.Node, op: Writer) -> Result:
    """Times one, which changes no number; multiplication repeats as Expand does."""
    value, shape = first(node), known(needed(node, 1))
    if shape is None:
        raise NoForm("Expand to a shape that is computed")
    if value.dtype is None or (value.dtype not in _MULTIPLIED and value.dtype != ir.DataType.BOOL):
        raise NoForm("Expand of another dtype than those that are multiplied")
    if value.dtype == ir.DataType.BOOL:
        return op.And(value, op.number(np.ones(shape), ir.DataType.BOOL))
    return op.Mul(value, op.number(np.ones(shape), value.dtype))


def _of_one_shape(node: ir.Node, op: Writer) -> Result:
    """Max, Min, Mean and Sum repeat nothing at opset 7: sums are added up by pairs, the rest needs equal shapes."""
    values = [value for value in node.inputs if value is not None]
    shapes = [value.shape for value in values]
    if all(shape is not None and shape.is_static() and shape == shapes[0] for shape in shapes):
        return None
    if node.op_type != "Sum":
        raise NoForm(f"{node.op_type} of inputs whose shapes are not equal and fixed")
    total = values[0]
    for value in values[1:]:
        total = op.Add(total, value)
    return op.Identity(total) if total is values[0] else total


_of = examples_at(8)

RULES = {
    "Expand": Rule(
        _expand,
        _of("y = Expand (x, s)", "float[3,1] x", "float[2,3,4] y", "int64[3] s = {2, 1, 4}"),
        "a computed shape",
    ),
    "Sum": Rule(_of_one_shape, _of("y = Sum (x, z)", "float[2,3] x, float[3] z", "float[2,3] y")),
    **{
        name: Rule(
            _of_one_shape, _of(f"y = {name} (x, z)", "float[3] x, float[3] z", "float[3] y"), "unequal or free shapes"
        )
        for name in ("Max", "Min", "Mean")
    },
}
