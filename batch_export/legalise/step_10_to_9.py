"""Opset 10 -> 9: parts and largest ones by attributes, infinities by order, and Upsample."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, given, needed, no_longer
from batch_export.legalise.step_13_to_12 import numbers_of
from batch_export.legalise.writing import Writer


def _slice(node: ir.Node, op: Writer) -> Result:
    steps = numbers_of(given(node, 4), "Slice by steps")
    if steps is not None and any(step != 1 for step in steps):
        raise NoForm("Slice by steps other than 1")
    starts, ends, axes = (numbers_of(given(node, place), "Slice at places") for place in (1, 2, 3))
    return op.Slice(first(node), starts=starts, ends=ends, axes=axes)


def _largest(node: ir.Node, op: Writer) -> Result:
    (count,) = numbers_of(needed(node, 1), "TopK of a number of ones") or [0]
    return op.several("TopK", [first(node)], len(node.outputs), axis=attribute(node, "axis", -1), k=count)


def _is_infinite(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    if value.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        raise NoForm("IsInf of another dtype than float32 and float64")
    largest = op.like(np.finfo(value.dtype.numpy()).max, value)
    above, below = op.Greater(value, largest), op.Less(value, op.Neg(largest))
    wanted = [
        side for side, name in ((above, "detect_positive"), (below, "detect_negative")) if attribute(node, name, 1)
    ]
    if not wanted:
        raise NoForm("IsInf that looks for nothing")
    return op.Or(*wanted) if len(wanted) == 2 else wanted[0]


def _upsample(node: ir.Node, op: Writer) -> Result:
    return op.Upsample(first(node), needed(node, 1), mode=attribute(node, "mode", "nearest"))


def _pool(node: ir.Node, op: Writer) -> Result:
    del op
    if all(step == 1 for step in attribute(node, "dilations", ())):
        no_longer(node, "dilations")
    return None


_of = examples_at(10)

RULES = {
    "Slice": Rule(
        _slice,
        _of(
            "y = Slice (x, s, e, a)",
            "float[2,3] x",
            "float[2,2] y",
            "int64[1] s = {1}, int64[1] e = {3}, int64[1] a = {1}",
        ),
        "places that are computed, or steps other than 1",
    ),
    "TopK": Rule(
        _largest,
        _of("y, i = TopK (x, k)", "float[2,3] x", "float[2,2] y, int64[2,2] i", "int64[1] k = {2}"),
        "a number that is computed",
    ),
    "IsInf": Rule(
        _is_infinite,
        _of("d = Div (x, o)  y = IsInf (d)", "float[2] x", "bool[2] y", "float[2] o = {0.0, 1.0}"),
        "half precision",
    ),
    "Resize": Rule(
        _upsample, _of("y = Resize (x, s)", "float[1,1,2,2] x", "float[1,1,4,4] y", "float[4] s = {1.0, 1.0, 2.0, 2.0}")
    ),
    "MaxPool": Rule(
        _pool,
        _of("y = MaxPool <kernel_shape = [2], dilations = [1]> (x)", "float[1,1,4] x", "float[1,1,3] y"),
        "dilations",
    ),
}
