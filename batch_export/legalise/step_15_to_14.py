"""Opset 15 -> 14: casts, sizes of some axes, and coin tosses, written with what there was."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, needed, no_longer
from batch_export.legalise.writing import Writer


def _cast_like(node: ir.Node, op: Writer) -> Result:
    dtype = needed(node, 1).dtype
    if dtype is None:
        raise NoForm("CastLike to an unknown dtype")
    return op.Cast(first(node), to=dtype)


def _shape(node: ir.Node, op: Writer) -> Result:
    start, end = attribute(node, "start", 0), attribute(node, "end")
    if start == 0 and end is None:
        no_longer(node, "start")
        return None
    whole = op.Shape(first(node))
    return op.Slice(whole, op.number([start]), op.number([np.iinfo(np.int64).max if end is None else end]))


def _bernoulli(node: ir.Node, op: Writer) -> Result:
    chance = first(node)
    dtype = attribute(node, "dtype", chance.dtype)
    if dtype is None:
        raise NoForm("Bernoulli of an unknown dtype")
    seed = {} if attribute(node, "seed") is None else {"seed": attribute(node, "seed")}
    drawn = op.RandomUniformLike(chance, dtype=ir.DataType.FLOAT, **seed)
    drawn.type = ir.TensorType(ir.DataType.FLOAT)
    return op.Cast(op.Less(drawn, op.Cast(chance, to=ir.DataType.FLOAT)), to=ir.DataType(dtype))


_of = examples_at(15)

RULES = {
    "CastLike": Rule(_cast_like, _of("y = CastLike (x, z)", "float[3] x, int64[1] z", "int64[3] y")),
    "Shape": Rule(_shape, _of("y = Shape <start = 1, end = -1> (x)", "float[2,N,4,5] x", "int64[2] y")),
    "Bernoulli": Rule(
        _bernoulli,
        _of("l = Less (x, z)  p = Cast <to = 1> (l)  y = Bernoulli (p)", "float[9] x, float[9] z", "float[9] y"),
    ),
}
