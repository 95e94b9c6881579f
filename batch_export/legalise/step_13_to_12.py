"""Opset 13 -> 12: axes and lengths are attributes, and softmax is of a matrix."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, given, known, no_longer, rank
from batch_export.legalise.writing import Writer


def numbers_of(value: ir.Value | None, what: str) -> list[int] | None:
    """The content of an input that becomes an attribute; None where it is left out.

    Raises:
        NoForm: it is computed.
    """
    if value is None:
        return None
    content = known(value)
    if content is None:
        raise NoForm(f"{what} that are computed")
    return [int(number) for number in content.reshape(-1)]


def _squeeze(node: ir.Node, op: Writer) -> Result:
    axes = numbers_of(given(node, 1), f"{node.op_type} along axes")
    return op.several(node.op_type, [first(node)], 1, axes=axes)[0]


def _sum(node: ir.Node, op: Writer) -> Result:
    axes = numbers_of(given(node, 1), "ReduceSum along axes")
    if not axes and attribute(node, "noop_with_empty_axes", 0):
        return op.Identity(first(node))
    return op.ReduceSum(first(node), axes=axes or None, keepdims=attribute(node, "keepdims", 1))


def _split(node: ir.Node, op: Writer) -> Result:
    lengths = numbers_of(given(node, 1), "Split into lengths")
    return op.several("Split", [first(node)], len(node.outputs), axis=attribute(node, "axis", 0), split=lengths)


def _softmax(node: ir.Node, op: Writer) -> Result:
    """Before opset 13 all axes from `axis` on are one: the last axis alone means the same."""
    value, axis = first(node), attribute(node, "axis", -1)
    if axis == -1 or (value.shape is not None and axis == len(value.shape) - 1):
        node.attributes["axis"] = ir.AttrInt64("axis", axis)
        return None
    count = rank(value, node.op_type)
    order = [place for place in range(count) if place != axis % count] + [axis % count]
    last = op.several(node.op_type, [op.Transpose(value, perm=order)], 1, axis=count - 1)[0]
    back = [order.index(place) for place in range(count)]
    return op.Transpose(last, perm=back)


def _quantised(node: ir.Node, op: Writer) -> Result:
    """With one scale for all; the scale of each channel needs the axis."""
    del op
    scale = node.inputs[1]
    if scale is None or scale.shape is None or len(scale.shape) != 0:
        raise NoForm(f"{node.op_type} with a scale for each channel")
    no_longer(node, "axis")
    return None


def _resize(node: ir.Node, op: Writer) -> Result:
    """The region and the scales are empty where they say nothing, and not left out."""
    for place in (1, 2):
        if given(node, place) is None:
            node.resize_inputs(max(len(node.inputs), place + 1))
            node.replace_input_with(place, op.number([], ir.DataType.FLOAT))
    return None


_of = examples_at(13)
_AXES = "int64[1] a = {1}"

RULES = {
    "Squeeze": Rule(
        _squeeze, _of("y = Squeeze (x, a)", "float[2,1,3] x", "float[2,3] y", _AXES), "axes that are computed"
    ),
    "Unsqueeze": Rule(
        _squeeze, _of("y = Unsqueeze (x, a)", "float[2,3] x", "float[2,1,3] y", _AXES), "axes that are computed"
    ),
    "ReduceSum": Rule(
        _sum,
        _of("y = ReduceSum <keepdims = 0> (x, a)", "float[2,4,3] x", "float[2,3] y", _AXES),
        "axes that are computed",
    ),
    "Split": Rule(
        _split,
        _of("y, z = Split <axis = 1> (x, n)", "float[2,5] x", "float[2,2] y, float[2,3] z", "int64[2] n = {2, 3}"),
        "lengths that are computed",
    ),
    **{
        name: Rule(_softmax, _of(f"y = {name} <axis = 1> (x)", "float[2,3,4] x", "float[2,3,4] y"))
        for name in ("Softmax", "LogSoftmax", "Hardmax")
    },
    "QuantizeLinear": Rule(
        _quantised,
        _of("y = QuantizeLinear (x, s, z)", "float[2,3] x", "uint8[2,3] y", "float s = {0.1}, uint8 z = {9}"),
        "a scale for each channel",
    ),
    "DequantizeLinear": Rule(
        _quantised,
        _of("y = DequantizeLinear (x, s, z)", "uint8[2,3] x", "float[2,3] y", "float s = {0.1}, uint8 z = {9}"),
        "a scale for each channel",
    ),
    "Resize": Rule(
        _resize, _of("y = Resize (x, , , n)", "float[1,1,2,2] x", "float[1,1,4,6] y", "int64[4] n = {1, 1, 4, 6}")
    ),
}
