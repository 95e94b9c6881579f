"""Opset 12 -> 11: comparisons, limits of integers, and exponents of another dtype, written with what there was."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.function_bodies import written_out
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, given, known, needed, no_longer
from batch_export.legalise.writing import Writer

_NUMBERS = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}


def _or_equal(node: ir.Node, op: Writer) -> Result:
    left, right = first(node), needed(node, 1)
    beyond = op.Greater(left, right) if node.op_type == "GreaterOrEqual" else op.Less(left, right)
    return op.Or(beyond, op.Equal(left, right))


def _is_integer(value: ir.Value) -> bool:
    return value.dtype is not None and not value.dtype.is_floating_point()


def _extreme(node: ir.Node, op: Writer) -> Result:
    """Of integers: chosen by comparison."""
    found = first(node)
    if not _is_integer(found):
        return None
    for other in node.inputs[1:]:
        if other is not None:
            found = _chosen(op, node.op_type, found, other)
    return op.Identity(found) if found is node.inputs[0] else found


def _chosen(op: Writer, name: str, left: ir.Value, right: ir.Value) -> ir.Value:
    better = op.Greater(left, right) if name == "Max" else op.Less(left, right)
    return op.Where(better, left, right)


def _clip(node: ir.Node, op: Writer) -> Result:
    """Of integers: chosen by comparison; of float64, for which ONNX Runtime has no kernel below: its extremes."""
    value = first(node)
    if not _is_integer(value) and value.dtype != ir.DataType.DOUBLE:
        return None
    for place, name in ((1, "Max"), (2, "Min")):
        limit = given(node, place)
        if limit is not None:
            value = _chosen(op, name, value, limit) if _is_integer(value) else _extreme_of(op, name, value, limit)
    return op.Identity(value) if value is node.inputs[0] else value


def _extreme_of(op: Writer, name: str, value: ir.Value, limit: ir.Value) -> ir.Value:
    found = op.Max(value, limit) if name == "Max" else op.Min(value, limit)
    found.type = value.type
    return found


def _power(node: ir.Node, op: Writer) -> Result:
    base, exponent = first(node), needed(node, 1)
    if base.dtype is None or exponent.dtype is None:
        raise NoForm("Pow of an unknown dtype")
    if not _is_integer(base):
        if base.dtype == exponent.dtype:
            return None
        return op.Pow(base, op.Cast(exponent, to=base.dtype))
    content = known(exponent)
    if content is None or content.size != 1 or int(content.reshape(-1)[0]) not in (1, 2, 3):
        raise NoForm("Pow of integers, other than squares and cubes")
    result = base
    for _ in range(int(content.reshape(-1)[0]) - 1):
        result = op.Mul(result, base)
    return op.Identity(base) if result is base else result


def _dropout(node: ir.Node, op: Writer) -> Result:
    """A mode that is not training's leaves the input as it is, whatever the ratio."""
    training = known(given(node, 2)) if given(node, 2) is not None else np.zeros((), np.bool_)
    if training is None or training.any() or len(node.outputs) > 1:
        raise NoForm("Dropout in training mode, or with its mask")
    return op.Identity(first(node))


def _celu(node: ir.Node, op: Writer) -> Result:
    value, alpha = first(node), attribute(node, "alpha", 1.0)
    below = op.Mul(op.Sub(op.Exp(op.Div(value, op.like(alpha, value))), op.like(1.0, value)), op.like(alpha, value))
    return op.Sub(op.Relu(value), op.Relu(op.Neg(below)))


def _constant(node: ir.Node, op: Writer) -> Result:
    del op
    for name, dtype in _NUMBERS.items():
        if name in node.attributes:
            content = np.asarray(attribute(node, name), dtype)
            no_longer(node, name)
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(content))
    return None


_of = examples_at(12)

RULES = {
    **{
        name: Rule(_or_equal, _of(f"y = {name} (x, z)", "float[4] x, float[4] z", "bool[4] y"))
        for name in ("GreaterOrEqual", "LessOrEqual")
    },
    **{
        name: Rule(_extreme, _of(f"y = {name} (x, z)", "int64[4] x, int64[4] z", "int64[4] y"))
        for name in ("Max", "Min")
    },
    "Clip": Rule(_clip, _of("y = Clip (x, a, b)", "int64[9] x", "int64[9] y", "int64 a = {-9}, int64 b = {20}")),
    "Pow": Rule(
        _power,
        _of("y = Pow (x, e)", "float[4] x", "float[4] y", "int64 e = {2}"),
        "integers, other than squares and cubes",
    ),
    "Dropout": Rule(_dropout, _of("y = Dropout (x)", "float[4] x", "float[4] y"), "training"),
    "NegativeLogLikelihoodLoss": written_out(
        12,
        _of(
            'y = NegativeLogLikelihoodLoss <ignore_index = 1, reduction = "mean"> (x, t, w)',
            "float[2,4,3] x",
            "float y",
            "int64[2,3] t = {0, 1, 3, 2, 1, 0}, float[4] w = {1, 2, 3, 4}",
        ),
    ),
    "Celu": Rule(_celu, _of("y = Celu <alpha = 1.5> (x)", "float[4] x", "float[4] y")),
    "Constant": Rule(
        _constant, _of("c = Constant <value_floats = [1.0, 2.0]> ()  y = Add (x, c)", "float[2] x", "float[2] y")
    ),
}
