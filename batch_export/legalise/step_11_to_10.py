"""Opset 11 -> 10: axes count from the front, limits and pads are attributes, and numbers are compared by order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, given, known, needed, no_longer, rank
from batch_export.legalise.step_13_to_12 import numbers_of
from batch_export.legalise.writing import Writer

_REDUCTIONS = tuple(
    f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)


def _from_the_front(node: ir.Node, op: Writer) -> Result:
    """Axes below 0 are counted from the end of the input, those of Unsqueeze of the result."""
    del op
    for name in ("axis", "axes"):
        given_axes = attribute(node, name)
        if given_axes is None:
            continue
        several = [int(axis) for axis in given_axes] if name == "axes" else [int(given_axes)]
        if min(several, default=0) >= 0:
            continue
        count = rank(first(node), f"{node.op_type} along an axis from the end")
        count += len(several) if node.op_type == "Unsqueeze" else 0
        counted = [axis % count for axis in several]
        made = ir.AttrInt64s("axes", counted) if name == "axes" else ir.AttrInt64("axis", counted[0])
        node.attributes[name] = made
    return None


def _clip(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    limits = [given(node, place) for place in (1, 2)]
    contents = [None if limit is None else known(limit) for limit in limits]
    if all(limit is None or content is not None for limit, content in zip(limits, contents, strict=True)):
        smallest, largest = (None if content is None else float(content.reshape(())) for content in contents)
        return op.Clip(value, min=smallest, max=largest)
    for limit, choose in zip(limits, (op.Max, op.Min), strict=True):
        value = value if limit is None else choose(value, limit)
    return value


def _pad(node: ir.Node, op: Writer) -> Result:
    if given(node, 3) is not None:
        raise NoForm("Pad along chosen axes")
    pads = numbers_of(needed(node, 1), "Pad by lengths")
    fill = known(given(node, 2)) if given(node, 2) is not None else np.zeros(())
    if fill is None:
        raise NoForm("Pad with a value that is computed")
    return op.Pad(first(node), mode=attribute(node, "mode", "constant"), pads=pads, value=float(fill.reshape(())))


def _range(node: ir.Node, op: Writer) -> Result:
    """The places of the ones in a vector of as many; of integers by a step that is known."""
    start, limit, step = first(node), needed(node, 1), needed(node, 2)
    content = known(step)
    if content is None or start.dtype not in (ir.DataType.INT64, ir.DataType.INT32):
        raise NoForm("Range of fractions, or by a step that is computed")
    size = int(content.reshape(()))
    one = 1 if size > 0 else -1
    apart = op.Sub(*(op.Cast(value, to=ir.DataType.INT64) for value in (limit, start)))
    count = op.Div(op.Add(apart, op.number(size - one)), op.number(size))
    enough = op.Where(op.Less(count, op.number(0)), op.number(0), count)
    ones = op.ConstantOfShape(op.Reshape(enough, op.number([1])), value=ir.tensor(np.ones(1, np.int64)))
    steps = op.Mul(op.Reshape(op.NonZero(ones), op.number([-1])), op.number(size))
    found = op.Add(steps, op.Cast(start, to=ir.DataType.INT64))
    return found if start.dtype == ir.DataType.INT64 else op.Cast(found, to=start.dtype)


def _equal(node: ir.Node, op: Writer) -> Result:
    """Fractions are equal where neither is the larger one; NaN equals nothing."""
    left, right = first(node), needed(node, 1)
    if left.dtype is None or not left.dtype.is_floating_point():
        return None
    apart = op.Or(op.Less(left, right), op.Greater(left, right))
    return op.Not(op.Or(apart, op.Or(op.IsNaN(left), op.IsNaN(right))))


def _scatter(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    axis = attribute(node, "axis", 0)
    axis = axis if axis >= 0 else axis + rank(value, "ScatterElements along an axis from the end")
    return op.Scatter(value, needed(node, 1), needed(node, 2), axis=axis)


def _resize(node: ir.Node, op: Writer) -> Result:
    how, mode = attribute(node, "coordinate_transformation_mode", "half_pixel"), attribute(node, "mode", "nearest")
    scales = given(node, 2)
    plain = mode == "linear" or (mode == "nearest" and attribute(node, "nearest_mode", "") == "floor")
    if how != "asymmetric" or not plain or scales is None or given(node, 3) is not None:
        raise NoForm("Resize other than by scales from the corner, to the lower neighbour or linear")
    return op.Resize(first(node), scales, mode=mode)


def _gemm(node: ir.Node, op: Writer) -> Result:
    """The addend may not be left out."""
    if given(node, 2) is None:
        node.resize_inputs(3)
        node.replace_input_with(2, op.like(0, first(node)))
    return None


def _slice(node: ir.Node, op: Writer) -> Result:
    axes = known(given(node, 3)) if given(node, 3) is not None else None
    if axes is None:
        if given(node, 3) is not None:
            raise NoForm("Slice along axes that are computed")
        return None
    if (axes < 0).any():
        count = rank(first(node), "Slice along an axis from the end")
        node.replace_input_with(3, op.number(axes % count))
    return None


def _depth(node: ir.Node, op: Writer) -> Result:
    del op
    if attribute(node, "mode", "DCR") != "DCR":
        raise NoForm("DepthToSpace with mode='CRD'")
    no_longer(node, "mode")
    return None


_of = examples_at(11)


def _along(name: str, write: Callable[[ir.Node, Writer], Result] = _from_the_front) -> Rule:
    return Rule(
        write, _of(f"y = {name} <axes = [-1]> (x)", "float[2,3] positive", "float[2,1] y").replace("(x)", "(positive)")
    )


RULES = {
    **{name: _along(name) for name in _REDUCTIONS},
    **{
        name: Rule(_from_the_front, _of(f"y = {name} <axis = -1> (x)", "float[2,3] x", "int64[2,1] y"))
        for name in ("ArgMax", "ArgMin")
    },
    **{
        name: Rule(_from_the_front, _of(f"y = {name} <axis = -1> (x)", "float[2,3] x", "float[2,3] y"))
        for name in ("Softmax", "LogSoftmax", "Hardmax")
    },
    "Squeeze": Rule(_from_the_front, _of("y = Squeeze <axes = [-2]> (x)", "float[2,1,3] x", "float[2,3] y")),
    "Unsqueeze": Rule(_from_the_front, _of("y = Unsqueeze <axes = [-1]> (x)", "float[2,3] x", "float[2,3,1] y")),
    "Flatten": Rule(_from_the_front, _of("y = Flatten <axis = -1> (x)", "float[2,3,4] x", "float[6,4] y")),
    "Concat": Rule(_from_the_front, _of("y = Concat <axis = -1> (x, z)", "float[2,3] x, float[2,1] z", "float[2,4] y")),
    "Split": Rule(_from_the_front, _of("y, z = Split <axis = -1> (x)", "float[2,4] x", "float[2,2] y, float[2,2] z")),
    "Gather": Rule(
        _from_the_front, _of("y = Gather <axis = -1> (x, i)", "float[2,3] x", "float[2,1] y", "int64[1] i = {1}")
    ),
    "TopK": Rule(
        _from_the_front,
        _of("y, i = TopK <axis = -1> (x, k)", "float[2,3] x", "float[2,2] y, int64[2,2] i", "int64[1] k = {2}"),
        "the smallest ones",
    ),
    "Clip": Rule(_clip, _of("y = Clip (x, a)", "float[4] x", "float[4] y", "float a = {0.1}")),
    "Pad": Rule(
        _pad,
        _of("y = Pad (x, p, v)", "float[2,3] x", "float[2,5] y", "int64[4] p = {0, 1, 0, 1}, float v = {0.5}"),
        "pads or a value that are computed",
    ),
    "Range": Rule(
        _range,
        _of("y = Range (a, n, d)", "int64 n", "int64[N] y", "int64 a = {-3}, int64 d = {2}"),
        "fractions, or a step that is computed",
    ),
    "Equal": Rule(_equal, _of("z = Neg (x)  y = Equal (x, z)", "float[4] x", "bool[4] y")),
    "ScatterElements": Rule(
        _scatter,
        _of(
            "y = ScatterElements <axis = -1> (x, i, u)",
            "float[2,3] x, float[2,1] u",
            "float[2,3] y",
            "int64[2,1] i = {2, 0}",
        ),
    ),
    "Resize": Rule(
        _resize,
        _of(
            'y = Resize <coordinate_transformation_mode = "asymmetric", mode = "nearest", nearest_mode = "floor">'
            " (x, r, s)",
            "float[1,1,2,2] x",
            "float[1,1,4,6] y",
            "float[0] r = {}, float[4] s = {1.0, 1.0, 2.0, 3.0}",
        ),
        "any but scales from the corner, to the lower neighbour or linear",
    ),
    "Gemm": Rule(_gemm, _of("y = Gemm (x, z)", "float[2,3] x, float[3,4] z", "float[2,4] y")),
    "Slice": Rule(
        _slice,
        _of(
            "y = Slice (x, s, e, a)",
            "float[2,3] x",
            "float[2,2] y",
            "int64[1] s = {1}, int64[1] e = {3}, int64[1] a = {-1}",
        ),
        "axes that are computed",
    ),
    "DepthToSpace": Rule(
        _depth, _of("y = DepthToSpace <blocksize = 2> (x)", "float[1,4,2,2] x", "float[1,1,4,4] y"), "mode=CRD"
    ),
}
