"""Opset 14 -> 13: triangles, hard swish, training statistics, and reshapes to nothing, written with what there was."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.examples import examples_at
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
    rank,
    sizes,
)
from batch_export.legalise.writing import Writer


def _triangle(node: ir.Node, op: Writer) -> Result:
    value, shift = first(node), given(node, 1)
    upper = bool(attribute(node, "upper", 1))
    diagonal, shape = np.zeros((), np.int64) if shift is None else known(shift), value.shape
    lengths = [None, None] if shape is None else sizes(value)[-2:]
    if value.dtype is None:
        raise NoForm("Trilu of an unknown dtype")
    if diagonal is not None and None not in lengths:
        make = np.triu if upper else np.tril
        ones = np.ones([size or 0 for size in lengths], np.bool_)
        mask = op.number(make(ones, int(diagonal.reshape(()))), ir.DataType.BOOL)
    else:
        whole = op.Shape(value)
        row, column = (op.Range(op.number(0), op.Gather(whole, op.number(axis)), op.number(1)) for axis in (-2, -1))
        away = op.Sub(column, op.Unsqueeze(row, op.number([1])))
        at = op.number(0) if shift is None else op.Reshape(shift, op.number(np.zeros(0)))
        mask = op.GreaterOrEqual(away, at) if upper else op.LessOrEqual(away, at)
    if value.dtype == ir.DataType.BOOL:
        return op.And(mask, value)
    return op.Where(mask, value, op.like(0, value))


def _hard_swish(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    return op.Mul(value, op.HardSigmoid(value, alpha=1 / 6, beta=0.5))


def _batch_normalisation(node: ir.Node, op: Writer) -> Result:
    if not attribute(node, "training_mode", 0):
        no_longer(node, "training_mode")
        return None
    value, scale, bias, mean, variance = (needed(node, index) for index in range(5))
    axes = [axis for axis in range(rank(value, "BatchNormalization in training mode")) if axis != 1]
    momentum, epsilon = attribute(node, "momentum", 0.9), attribute(node, "epsilon", 1e-5)
    found = op.ReduceMean(value, axes=axes, keepdims=1)
    centred = op.Sub(value, found)
    spread = op.ReduceMean(op.Mul(centred, centred), axes=axes, keepdims=1)
    each = op.number([-1] + [1] * (len(axes) - 1))  # [channels, 1, ...], beside the axes after the channels
    scaled = op.Mul(op.Div(centred, op.Sqrt(op.Add(spread, op.like(epsilon, value)))), op.Reshape(scale, each))
    results = [op.Add(scaled, op.Reshape(bias, each))]
    for old, new in ((mean, found), (variance, spread)):
        kept = op.Mul(old, op.like(momentum, old))
        flat = op.Reshape(new, op.number([-1]))
        flat = op.Cast(flat, to=old.dtype) if old.dtype not in (None, value.dtype) else flat
        results.append(op.Add(kept, op.Mul(flat, op.like(1 - momentum, old))))
    return results[: len(node.outputs)]


_LAYOUT = {"X": (0, [1, 0, 2]), "h": (5, [1, 0, 2]), "c": (6, [1, 0, 2])}


def _recurrent(node: ir.Node, op: Writer) -> Result:
    """With the batch first, as without, between transpositions."""
    if not attribute(node, "layout", 0):
        no_longer(node, "layout")
        return None
    no_longer(node, "layout")
    inputs = list(node.inputs)
    for index, perm in _LAYOUT.values():
        value = given(node, index)
        if value is not None and (index != 6 or node.op_type == "LSTM"):
            inputs[index] = op.Transpose(value, perm=perm)
    results = op.several(node.op_type, inputs, len(node.outputs), **node.attributes)
    return [op.Transpose(value, perm=[2, 0, 1, 3] if place == 0 else [1, 0, 2]) for place, value in enumerate(results)]


def _reshape(node: ir.Node, op: Writer) -> Result:
    """A size of 0 copies the input's at that place, at every opset below 14."""
    allowed = attribute(node, "allowzero", 0)
    no_longer(node, "allowzero")
    if not allowed:
        return None
    value, shape = first(node), needed(node, 1)
    content = known(shape)
    if content is not None:
        if content.all():
            return None
        return op.Cast(op.ConstantOfShape(op.number(content)), to=_dtype(value))
    if _copies_what_is_there(value, node.outputs[0]):
        return None
    return _empty_or_reshaped(node, op, value, shape)


def _dtype(value: ir.Value) -> ir.DataType:
    if value.dtype is None:
        raise NoForm("Reshape to nothing of an unknown dtype")
    return value.dtype


def _copies_what_is_there(value: ir.Value, result: ir.Value) -> bool:
    """Whether each size of the result that could be 0 is the input's at that place."""
    if result.shape is None:
        return False
    before = list(value.shape) if value.shape is not None else []
    for place, size in enumerate(result.shape):
        if isinstance(size, int) and size > 0:
            continue
        if place >= len(before) or before[place] != size or (not isinstance(size, int) and size.value is None):
            return False
    return True


def _empty_or_reshaped(node: ir.Node, op: Writer, value: ir.Value, shape: ir.Value) -> Result:
    """A branch: the new shape has a 0 where nothing is left to copy from."""
    smallest = op.ReduceMin(op.Abs(shape), keepdims=0)
    dtype = _dtype(value)
    empty, full = Writer(), Writer()
    nothing = empty.Cast(empty.ConstantOfShape(shape), to=dtype)
    reshaped = full.Reshape(value, shape)
    branches = []
    for writer, result in ((empty, nothing), (full, reshaped)):
        result.type, result.shape = ir.TensorType(dtype), node.outputs[0].shape
        branches.append(ir.Graph([], [result], nodes=writer.nodes))
    then, otherwise = (
        ir.AttrGraph(name, branch) for name, branch in zip(("then_branch", "else_branch"), branches, strict=True)
    )
    return op.several("If", [op.Equal(smallest, op.number(0))], 1, then_branch=then, else_branch=otherwise)[0]


def _positive(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    if value.dtype is None or value.dtype.is_floating_point():
        return None
    return op.Max(value, op.like(0, value))


_of = examples_at(14)

RULES = {
    "Trilu": Rule(_triangle, _of("y = Trilu <upper = 0> (x, shift)", "float[2,3,M] x, int64 shift", "float[2,3,M] y")),
    "HardSwish": Rule(_hard_swish, _of("y = HardSwish (x)", "float[4] x", "float[4] y")),
    "BatchNormalization": Rule(
        _batch_normalisation,
        _of(
            "y, m, v = BatchNormalization <training_mode = 1> (x, s, b, mean, var)",
            "float[3,2,4] x, float[2] s, float[2] b, float[2] mean, float[2] var",
            "float[3,2,4] y, float[2] m, float[2] v",
        ),
    ),
    **{
        name: Rule(
            _recurrent,
            _of(
                f"y, h = {name} <layout = 1, hidden_size = 2> (x, w, r)",
                f"float[2,3,4] x, float[1,{rows},4] w, float[1,{rows},2] r",
                "float[2,3,1,2] y, float[2,1,2] h",
            ),
        )
        for name, rows in (("GRU", 6), ("LSTM", 8), ("RNN", 2))
    },
    "Reshape": Rule(
        _reshape,
        _of(
            "s = Concat <axis = 0> (rows, columns)  y = Reshape <allowzero = 1> (x, s)",
            "float[A,B] x, int64[1] rows, int64[1] columns",
            "float[C,D] y",
        ),
    ),
    "Relu": Rule(_positive, _of("y = Relu (x)", "int32[4] x", "int32[4] y")),
}
