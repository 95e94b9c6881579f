"""Opset 18 -> 17: axes of reductions become attributes again, and what 18 added is written with what there was."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.legalise import reduced_scatter
from batch_export.legalise.examples import examples_at
from batch_export.legalise.function_bodies import written_out
from batch_export.legalise.rules import (
    NoForm,
    Result,
    Rule,
    attribute,
    first,
    given,
    known,
    needed,
    no_longer,
    sizes,
)
from batch_export.legalise.writing import Writer

_PLAIN = frozenset({"ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"})
"""Reductions of one element that leave it as it is."""


def _reduce(node: ir.Node, op: Writer) -> Result:
    axes, skip = given(node, 1), attribute(node, "noop_with_empty_axes", 0)
    content = known(axes)
    if axes is not None and content is None:
        raise NoForm(f"{node.op_type} over axes that are computed")
    no_longer(node, "noop_with_empty_axes")
    if content is not None and content.size:
        node.attributes["axes"] = ir.AttrInt64s("axes", [int(axis) for axis in content.reshape(-1)])
    elif skip:
        if node.op_type not in _PLAIN:
            raise NoForm(f"{node.op_type} over no axes")
        return op.Identity(first(node))
    node.resize_inputs(1)
    return None


def _split(node: ir.Node, op: Writer) -> Result:
    count = len(node.outputs)
    no_longer(node, "num_outputs")
    if given(node, 1) is not None:
        return None
    data = first(node)
    axis = attribute(node, "axis", 0)
    size = sizes(data)[axis] if data.shape is not None else None
    if size is not None and size % count == 0:
        return None
    if size is not None:
        each = -(-size // count)
        lengths = op.number([max(0, min(each, size - place * each)) for place in range(count)])
    else:
        whole = op.Gather(op.Shape(data), op.number([axis]))
        length = op.Div(op.Add(whole, op.number([count - 1])), op.number([count]))
        starts = op.Min(op.Mul(length, op.number(list(range(count)))), whole)
        lengths = op.Sub(op.Min(op.Add(starts, length), whole), starts)
    return op.several("Split", [data, lengths], count, axis=axis)


def _every_axis(op: Writer, data: ir.Value, axes: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The number of axes `int64[1]`, and the axes named counted from the front."""
    count = op.Shape(op.Shape(data))
    wide = op.Cast(axes, to=ir.DataType.INT64)
    return count, op.Where(op.Less(wide, op.number(0)), op.Add(wide, count), wide)


def _pad(node: ir.Node, op: Writer) -> Result:
    axes = given(node, 3)
    if axes is None:
        node.resize_inputs(min(len(node.inputs), 3))
        return None
    data, pads, chosen = first(node), needed(node, 1), known(axes)
    content = known(pads)
    if data.shape is not None and chosen is not None and content is not None:
        full = np.zeros((2, len(data.shape)), np.int64)
        full[:, chosen.astype(np.int64)] = content.reshape(2, -1)
        every = op.number(full.reshape(-1))
    else:
        count, places = _every_axis(op, data, axes)
        nothing = op.ConstantOfShape(op.Add(count, count), value=ir.tensor(np.zeros(1, np.int64)))
        every = op.ScatterElements(nothing, op.Concat(places, op.Add(places, count), axis=0), pads, axis=0)
    node.replace_input_with(1, every)
    node.resize_inputs(3 if given(node, 2) is not None else 2)
    return None


def _resize(node: ir.Node, op: Writer) -> Result:
    if attribute(node, "antialias", 0):
        raise NoForm("an antialiased Resize")
    if attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NoForm("a Resize that keeps the aspect ratio")
    axes = attribute(node, "axes")
    no_longer(node, "antialias", "axes", "keep_aspect_ratio_policy")
    if axes is None:
        return None
    if given(node, 1) is not None and attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise NoForm("a Resize that crops along some of the axes")
    data, scales, lengths = first(node), given(node, 2), given(node, 3)
    _, places = _every_axis(op, data, op.number(list(axes)))
    if lengths is not None:
        node.replace_input_with(3, op.ScatterElements(op.Shape(data), places, lengths, axis=0))
    elif scales is not None:
        ones = op.ConstantOfShape(op.Shape(op.Shape(data)), value=ir.tensor(np.ones(1, np.float32)))
        node.replace_input_with(2, op.ScatterElements(ones, places, scales, axis=0))
    return None


_BITS = 64


def _bits(op: Writer, value: ir.Value) -> ir.Value:
    """`int64[..., 64]`: the bits of two's complement, the sign's last."""
    each = op.Unsqueeze(op.Cast(value, to=ir.DataType.INT64), op.number([-1]))
    powers = op.number([2**place for place in range(_BITS - 1)])
    halves = op.Div(op.Sub(each, op.Mod(each, powers)), powers)  # Div drops fractions; there is none left
    sign = op.Cast(op.Less(each, op.number(0)), to=ir.DataType.INT64)
    return op.Concat(op.Mod(halves, op.number(2)), sign, axis=-1)


def _number(op: Writer, bits: ir.Value, axis: int) -> ir.Value:
    """The numbers that bits along an axis stand for, in halves.

    Sums beyond 2^53 are not exact in ONNX Runtime (1.31); those of nothing along an axis below 0 keep it.
    """
    half = _BITS // 2
    low = [2**place for place in range(half)] + [0] * half
    high = [0] * half + [2**place for place in range(half - 1)] + [-(2 ** (half - 1))]
    sums = [op.ReduceSum(op.Mul(bits, op.number(weights)), op.number([axis]), keepdims=0) for weights in (low, high)]
    return op.Add(sums[0], op.Mul(sums[1], op.number(2**half)))


def _bitwise(node: ir.Node, op: Writer) -> Result:
    one, other = first(node), needed(node, 1)
    if one.dtype is None:
        raise NoForm(f"{node.op_type} of an unknown dtype")
    left, right = _bits(op, one), _bits(op, other)
    if node.op_type == "BitwiseAnd":
        bits = op.Mul(left, right)
    elif node.op_type == "BitwiseOr":
        bits = op.Max(left, right)
    else:
        bits = op.Abs(op.Sub(left, right))
    rank = -1 if one.shape is None or other.shape is None else max(len(one.shape), len(other.shape))
    return op.Cast(_number(op, bits, rank), to=one.dtype)


def _bitwise_not(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    if value.dtype is None:
        raise NoForm("BitwiseNot of an unknown dtype")
    # All bits set, as the int64 that the cast of an unsigned number gives too.
    limits: Any = np.iinfo(value.dtype.numpy())
    every = -1 if limits.min < 0 or limits.bits == _BITS else int(limits.max)
    wide = op.Cast(value, to=ir.DataType.INT64)
    return op.Cast(op.Sub(op.number(every), wide), to=value.dtype)


def _mish(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    return op.Mul(value, op.Tanh(op.Softplus(value)))


def _group_normalisation(node: ir.Node, op: Writer) -> Result:
    """One scale and bias for each group, so that a group is a channel of an InstanceNormalization."""
    value = first(node)
    groups = op.Reshape(value, op.number([0, attribute(node, "num_groups"), -1]))
    epsilon = attribute(node, "epsilon", 1e-5)
    normal = op.InstanceNormalization(groups, needed(node, 1), needed(node, 2), epsilon=epsilon)
    return op.Reshape(normal, op.Shape(value))


def _lp_pool(node: ir.Node, op: Writer) -> Result:
    del op
    if attribute(node, "ceil_mode", 0) or any(step != 1 for step in attribute(node, "dilations", ())):
        raise NoForm("an LpPool with dilations or a rounded-up size")
    no_longer(node, "ceil_mode", "dilations")
    return None


def _columns_to_image(node: ir.Node, op: Writer) -> Result:
    """Col2Im: every place of the block is written into an image of its own, and the images are added."""
    image, block = known(given(node, 1)), known(given(node, 2))
    if image is None or block is None:
        raise NoForm("Col2Im with an image or block size that is computed")
    dims = len(image)
    steps, spread = attribute(node, "strides", [1] * dims), attribute(node, "dilations", [1] * dims)
    pads = list(attribute(node, "pads", [0] * 2 * dims))
    padded = [int(image[axis]) + pads[axis] + pads[axis + dims] for axis in range(dims)]
    counts = [(padded[axis] - spread[axis] * (int(block[axis]) - 1) - 1) // steps[axis] + 1 for axis in range(dims)]
    area, places = int(np.prod(padded)), int(np.prod(counts))
    size, shape = int(np.prod(block)), first(node).shape
    width = shape[1] if shape is not None else None
    channels = width // size if isinstance(width, int) else -1  # a batch may be empty, and then none is worked out
    each = op.Reshape(first(node), op.number([0, channels, size, places]))
    each = op.Transpose(each, perm=[2, 3, 0, 1])  # [block, places, batch, channels]
    outer = op.Slice(op.Shape(each), op.number([2]), op.number([4]))
    zero = op.like([0], each)
    empty = op.Expand(zero, op.Concat(op.number([area]), outer, axis=0))
    whole: ir.Value | None = None
    corners = np.indices(counts).reshape(dims, -1)
    for index, offset in enumerate(np.ndindex(*map(int, block))):
        at = [corners[axis] * steps[axis] + offset[axis] * spread[axis] for axis in range(dims)]
        rows = np.ravel_multi_index(at, padded).reshape(-1, 1)
        part = op.ScatterND(empty, op.number(rows), op.Gather(each, op.number(index), axis=0))
        whole = part if whole is None else op.Add(whole, part)
    assert whole is not None
    apart = op.Reshape(op.Transpose(whole, perm=[1, 2, 0]), op.number([0, 0, *padded]))
    ends = [pads[axis] + int(image[axis]) for axis in range(dims)]
    return op.Slice(apart, op.number(pads[:dims]), op.number(ends), op.number([axis + 2 for axis in range(dims)]))


def _has_element(node: ir.Node, op: Writer) -> Result:
    value = given(node, 0)
    if value is not None and isinstance(value.type, ir.OptionalType):
        return None
    if value is not None and value.type is None:
        raise NoForm("OptionalHasElement of an unknown type")
    return op.number(value is not None, ir.DataType.BOOL)


def _get_element(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    if isinstance(value.type, ir.OptionalType):
        return None
    if value.type is None:
        raise NoForm("OptionalGetElement of an unknown type")
    return op.Identity(value)


def _scatter(node: ir.Node, op: Writer) -> Result:
    if attribute(node, "reduction", "none") not in ("max", "min"):
        return None
    return (reduced_scatter.scatter_nd if node.op_type == "ScatterND" else reduced_scatter.scatter_elements)(node, op)


_of = examples_at(18)

_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"),
)

RULES = {
    **{
        name: Rule(
            _reduce,
            _of(f"y = {name} (positive, axes)", "float[2,3,4] positive", "float[2,1,4] y", "int64[1] axes = {1}"),
            "axes that are computed",
        )
        for name in _REDUCTIONS
    },
    "Split": Rule(
        _split, _of("a, b = Split <axis = 1, num_outputs = 2> (x)", "float[2,N] x", "float[2,P] a, float[2,Q] b")
    ),
    "Pad": Rule(
        _pad,
        _of(
            "y = Pad (x, pads, , axes)", "float[2,3] x", "float[2,6] y", "int64[2] pads = {1, 2}, int64[1] axes = {-1}"
        ),
    ),
    "Resize": Rule(
        _resize,
        _of(
            'y = Resize <axes = [2], mode = "linear"> (x, , scales)',
            "float[1,2,3] x",
            "float[1,2,6] y",
            "float[1] scales = {2.0}",
        ),
        "antialias=1, an aspect ratio that is kept, or tf_crop_and_resize along some of the axes",
    ),
    "BitwiseAnd": Rule(_bitwise, _of("y = BitwiseAnd (x, z)", "int32[4] x, int32[4] z", "int32[4] y")),
    "BitwiseOr": Rule(_bitwise, _of("y = BitwiseOr (x, z)", "int64[4] x, int64[4] z", "int64[4] y")),
    "BitwiseXor": Rule(_bitwise, _of("y = BitwiseXor (x, z)", "uint8[4] x, uint8[4] z", "uint8[4] y")),
    "BitwiseNot": Rule(_bitwise_not, _of("y = BitwiseNot (x)", "int32[4] x", "int32[4] y")),
    "Mish": Rule(_mish, _of("y = Mish (x)", "float[4] x", "float[4] y")),
    "GroupNormalization": Rule(
        _group_normalisation,
        _of(
            "y = GroupNormalization <num_groups = 2> (x, scale, bias)",
            "float[2,4,3] x, float[2] scale, float[2] bias",
            "float[2,4,3] y",
        ),
    ),
    "LpPool": Rule(
        _lp_pool,
        _of("y = LpPool <kernel_shape = [2], ceil_mode = 0> (x)", "float[1,2,6] x", "float[1,2,5] y"),
        "dilations or ceil_mode=1",
    ),
    "Col2Im": Rule(
        _columns_to_image,
        _of(
            "y = Col2Im <pads = [1,0,1,0], strides = [2,1]> (x, image, block)",
            "float[2,12,9] x",
            "float[2,C,5,4] y",
            "int64[2] image = {5, 4}, int64[2] block = {3, 2}",
        ),
        "an image or block size that is computed",
    ),
    "CenterCropPad": written_out(
        18,
        _of(
            "y = CenterCropPad <axes = [0, 1]> (x, shape)",
            "float[2,5] x",
            "float[3,4] y",
            "int64[2] shape = {3, 4}",
        ),
    ),
    "OptionalHasElement": Rule(_has_element, _of("y = OptionalHasElement (x)", "float[2] x", "bool y")),
    "OptionalGetElement": Rule(_get_element, _of("y = OptionalGetElement (x)", "float[2] x", "float[2] y")),
    "ScatterND": Rule(_scatter, _of(*reduced_scatter.example("ScatterND", "max"))),
    "ScatterElements": Rule(_scatter, _of(*reduced_scatter.example("ScatterElements", "min"))),
}
