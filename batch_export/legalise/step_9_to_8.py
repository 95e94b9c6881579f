"""Opset 9 -> 8: tensors of one number, signs, and NaN by order."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, known, needed
from batch_export.legalise.writing import Writer


def _of_one_number(node: ir.Node, op: Writer) -> Result:
    tensor = attribute(node, "value")
    number = np.zeros(1, np.float32) if tensor is None else tensor.numpy()
    shape = known(first(node))
    if shape is not None:
        return op.Constant(value=ir.tensor(np.full(shape, number.reshape(()))))
    return op.Expand(op.Constant(value=ir.tensor(number)), first(node))


def _fraction(node: ir.Node) -> ir.Value:
    """The input, which is of a dtype that is compared at opset 8."""
    value = first(node)
    if value.dtype is None or not value.dtype.is_floating_point():
        raise NoForm(f"{node.op_type} of integers")
    return value


def _sign(node: ir.Node, op: Writer) -> Result:
    """1, -1, or the number itself, which is 0 or NaN."""
    value = _fraction(node)
    zero = op.like(0, value)
    above, below = (op.Cast(side, to=value.dtype) for side in (op.Greater(value, zero), op.Less(value, zero)))
    return op.Sub(above, below)


def _is_nan(node: ir.Node, op: Writer) -> Result:
    """A number is below 1 or above 0."""
    value = _fraction(node)
    return op.Not(op.Or(op.Less(value, op.like(1, value)), op.Greater(value, op.like(0, value))))


def _upsample(node: ir.Node, op: Writer) -> Result:
    scales = known(needed(node, 1))
    if scales is None:
        raise NoForm("Upsample by scales that are computed")
    return op.Upsample(first(node), mode=attribute(node, "mode", "nearest"), scales=[float(one) for one in scales])


def _scan(node: ir.Node, op: Writer) -> Result:
    del op
    raise NoForm(node.op_type)


_of = examples_at(9)

RULES = {
    "Scan": Rule(
        _scan,
        _of(
            "y, z = Scan <num_scan_inputs = 1, body = b (float[2] c, float[2] i) => (float[2] d, float[2] o)"
            " { d = Add (c, i) o = Neg (i) }> (s, x)",
            "float[2] s, float[3,2] x",
            "float[2] y, float[3,2] z",
        ),
        "anything: at opset 8 it means another thing",
    ),
    "ConstantOfShape": Rule(
        _of_one_number,
        _of("s = Shape (x)  y = ConstantOfShape <value = float {2.5}> (s)", "float[N,3] x", "float[N,3] y").replace(
            "float {2.5}", "float[1] {2.5}"
        ),
    ),
    "Upsample": Rule(
        _upsample,
        _of("y = Upsample (x, s)", "float[1,1,2,2] x", "float[1,1,4,4] y", "float[4] s = {1.0, 1.0, 2.0, 2.0}"),
        "scales that are computed",
    ),
    "Sign": Rule(_sign, _of("y = Sign (x)", "float[4] x", "float[4] y"), "integers"),
    "IsNaN": Rule(
        _is_nan, _of("d = Div (x, o)  y = IsNaN (d)", "float[2] x", "bool[2] y", "float[2] o = {0.0, 1.0}"), "integers"
    ),
}
