"""Opset 21 -> 20: scales of group normalisation per channel, and dtypes that a quantisation names."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.normalising import HALF
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, given, needed, no_longer
from batch_export.legalise.writing import Writer


def _group_normalisation(node: ir.Node, op: Writer) -> Result:
    """Groups as the channels of an InstanceNormalization without scale, then a scale and bias for each channel."""
    value, scale, bias = first(node), needed(node, 1), needed(node, 2)
    if value.dtype is None:
        raise NoForm("GroupNormalization of an unknown dtype")
    groups = attribute(node, "num_groups")
    stash = ir.DataType(attribute(node, "stash_type", 1))
    wide = op.Cast(value, to=stash) if value.dtype in HALF and value.dtype != stash else value
    apart = op.Reshape(wide, op.number([0, groups, -1]))
    ones, zeros = (op.like(np.full(groups, fill), wide) for fill in (1, 0))
    normal = op.InstanceNormalization(apart, ones, zeros, epsilon=attribute(node, "epsilon", 1e-5))
    shape = op.Shape(value)
    whole = op.Reshape(op.Cast(normal, to=value.dtype) if wide is not value else normal, shape)
    after = op.Sub(op.Shape(shape), op.number([2]))  # axes after the channels
    each = op.Concat(op.number([-1]), op.Expand(op.number([1]), after), axis=0)
    return op.Add(op.Mul(whole, op.Reshape(scale, each)), op.Reshape(bias, each))


def _quantise(node: ir.Node, op: Writer) -> Result:
    wanted = attribute(node, "output_dtype", 0)
    no_longer(node, "output_dtype")
    if wanted and given(node, 2) is None:
        node.resize_inputs(3)
        zero = ir.tensor(np.zeros(1, ir.DataType(wanted).numpy()), dtype=ir.DataType(wanted))
        node.replace_input_with(2, op.ConstantOfShape(op.Shape(needed(node, 1)), value=zero))
    return None


_of = examples_at(21)

RULES = {
    "GroupNormalization": Rule(
        _group_normalisation,
        _of(
            "y = GroupNormalization <num_groups = 2> (x, s, b)",
            "float[2,4,3] x, float[4] s, float[4] b",
            "float[2,4,3] y",
        ),
    ),
    "QuantizeLinear": Rule(
        _quantise,
        _of("y = QuantizeLinear <output_dtype = 3> (x, s)", "float[4] x", "int8[4] y", "float s = {0.5}"),
        "blocks of scales",
    ),
}
