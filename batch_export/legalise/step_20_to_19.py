"""Opset 20 -> 19: Gelu, grids, the axis of a Fourier transform, and extremes of booleans."""

from __future__ import annotations

import math

import onnx_ir as ir

from batch_export.legalise.affine_grid import affine_grid
from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, given, known, rank
from batch_export.legalise.writing import Writer

_OLD_MODES = {"linear": "bilinear", "cubic": "bicubic", "nearest": "nearest"}


def _gelu(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    half, one = op.like(0.5, value), op.like(1.0, value)
    if attribute(node, "approximate", "none") == "tanh":
        cube = op.Mul(op.Mul(op.Mul(value, value), value), op.like(0.044715, value))
        inner = op.Tanh(op.Mul(op.Add(value, cube), op.like(math.sqrt(2 / math.pi), value)))
    else:
        inner = op.Erf(op.Div(value, op.like(math.sqrt(2), value)))
    return op.Mul(op.Mul(value, op.Add(inner, one)), half)


def _grid_sample(node: ir.Node, op: Writer) -> Result:
    del op
    if rank(first(node), "GridSample") != 4:
        raise NoForm("GridSample of images of other than two dimensions")
    node.attributes["mode"] = ir.AttrString("mode", _OLD_MODES[attribute(node, "mode", "linear")])
    return None


def _dft(node: ir.Node, op: Writer) -> Result:
    del op
    axis = known(given(node, 2)) if given(node, 2) is not None else -2
    if axis is None:
        raise NoForm("DFT along an axis that is computed")
    if attribute(node, "inverse", 0) and attribute(node, "onesided", 0):
        raise NoForm("a one-sided inverse DFT")
    place = int(axis) if isinstance(axis, int) else int(axis.reshape(()))
    # Counted from the front: ONNX Runtime's DFT of opset 17 takes no other axis.
    node.attributes["axis"] = ir.AttrInt64("axis", place % rank(first(node), "DFT"))
    node.resize_inputs(2 if given(node, 1) is not None else 1)
    return None


def _extreme(node: ir.Node, op: Writer) -> Result:
    value = first(node)
    if value.dtype != ir.DataType.BOOL:
        return None
    numbers = op.Cast(value, to=ir.DataType.UINT8)
    found = op.several(node.op_type, [numbers, *node.inputs[1:]], 1, **node.attributes)[0]
    return op.Cast(found, to=ir.DataType.BOOL)


_of = examples_at(20)

RULES = {
    "Gelu": Rule(_gelu, _of('y = Gelu <approximate = "tanh"> (x)', "float[6] x", "float[6] y")),
    "AffineGrid": Rule(
        affine_grid,
        _of("y = AffineGrid (t, size)", "float[2,2,3] t", "float[2,3,4,2] y", "int64[4] size = {2, 1, 3, 4}"),
    ),
    "GridSample": Rule(
        _grid_sample,
        _of(
            'y = GridSample <mode = "cubic"> (x, grid)',
            "float[2,3,4,5] x, float[2,3,2,2] grid",
            "float[2,3,3,2] y",
        ),
        "images of other than two dimensions",
    ),
    "DFT": Rule(
        _dft,
        _of("y = DFT (x, , a)", "float[2,6,3,2] x", "float[2,6,3,2] y", "int64 a = {1}"),
        "an axis that is computed, or a one-sided inverse",
    ),
    "ReduceMax": Rule(_extreme, _of("y = ReduceMax (x, a)", "bool[2,3] x", "bool[2,1] y", "int64[1] a = {1}")),
    "ReduceMin": Rule(_extreme, _of("y = ReduceMin (x, a)", "bool[2,3] x", "bool[2,1] y", "int64[1] a = {1}")),
}
