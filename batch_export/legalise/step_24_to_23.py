"""Opset 24 -> 23: Swish, writes into a cache, and attention over padded caches, written with what there was."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.function_bodies import expand
from batch_export.legalise.rules import Result, Rule, attribute, first, given, needed, rank
from batch_export.legalise.writing import Writer


def swish(node: ir.Node, op: Writer) -> Result:
    value, alpha = first(node), attribute(node, "alpha", 1.0)
    inner = value if alpha == 1.0 else op.Mul(value, op.like(alpha, value))
    return op.Mul(value, op.Sigmoid(inner))


def _attention(node: ir.Node, op: Writer) -> Result:
    if given(node, 6) is None:
        node.resize_inputs(min(len(node.inputs), 6))
        return None
    return expand(node, op, 24)


def _cache_write(node: ir.Node, op: Writer) -> Result:
    cache, update, starts = first(node), needed(node, 1), given(node, 2)
    axes = rank(cache, "TensorScatter")
    axis = attribute(node, "axis", -2) % axes
    length = op.Gather(op.Shape(update), op.number(axis))
    steps = op.Reshape(op.Range(op.number(0), length, op.number(1)), op.number([-1] + [1] * (axes - 1 - axis)))
    if starts is not None:
        steps = op.Add(op.Reshape(starts, op.number([-1] + [1] * (axes - 1))), steps)
    if attribute(node, "mode", "linear") == "circular":
        steps = op.Mod(steps, op.Gather(op.Shape(cache), op.number(axis)))
    return op.ScatterElements(cache, op.Expand(steps, op.Shape(update)), update, axis=axis)


_of = examples_at(24)

RULES = {
    "Swish": Rule(swish, _of("y = Swish <alpha = 1.5> (x)", "float[4] x", "float[4] y")),
    "Attention": Rule(
        _attention,
        _of(
            "y = Attention (q, k, v, , , , length)",
            "float[2,2,3,8] q, float[2,2,6,8] k, float[2,2,6,8] v",
            "float[2,2,3,8] y",
            "int64[2] length = {4, 5}",
        ),
        again=True,
    ),
    "TensorScatter": Rule(
        _cache_write,
        _of(
            'y = TensorScatter <mode = "circular"> (cache, update, starts)',
            "float[2,3,6,4] cache, float[2,3,2,4] update",
            "float[2,3,6,4] y",
            "int64[2] starts = {1, 5}",
        ),
    ),
}
