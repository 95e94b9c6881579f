"""Opset 23 -> 22: attention, rotary embedding and root mean square normalisation, written with what there was."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.function_bodies import written_out
from batch_export.legalise.normalising import HALF, last_axes
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, needed
from batch_export.legalise.writing import Writer


def _root_mean_square(node: ir.Node, op: Writer) -> Result:
    value, scale = first(node), needed(node, 1)
    stash = ir.DataType(attribute(node, "stash_type", 1))
    dtype = value.dtype
    if dtype is None:
        raise NoForm("RMSNormalization of an unknown dtype")
    axes = last_axes(value, attribute(node, "axis", -1))
    wide = op.Cast(value, to=stash) if dtype in HALF and dtype != stash else value
    squares = op.ReduceMean(op.Mul(wide, wide), op.number(axes), keepdims=1)
    normal = op.Div(wide, op.Sqrt(op.Add(squares, op.like(attribute(node, "epsilon", 1e-5), wide))))
    return op.Mul(normal if wide is value else op.Cast(normal, to=dtype), scale)


_of = examples_at(23)

RULES = {
    "RMSNormalization": Rule(
        _root_mean_square,
        _of("y = RMSNormalization <axis = 1> (x, s)", "float[2,3,4] x, float[3,4] s", "float[2,3,4] y"),
    ),
    "RotaryEmbedding": written_out(
        23,
        _of(
            "y = RotaryEmbedding (x, c, s)",
            "float[2,2,3,8] x, float[2,3,4] c, float[2,3,4] s",
            "float[2,2,3,8] y",
        ),
    ),
    "Attention": written_out(
        23,
        _of(
            "y = Attention <is_causal = 1> (q, k, v)",
            "float[2,2,3,8] q, float[2,2,3,8] k, float[2,2,3,8] v",
            "float[2,2,3,8] y",
        ),
    ),
}
