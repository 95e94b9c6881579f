"""Opset 19 -> 20: GridSample's modes have other names, and the axis of a Fourier transform is an input."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import Result, Rule, attribute, no_longer
from batch_export.legalise.writing import Writer

_NEW_MODES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}


def _grid_sample(node: ir.Node, op: Writer) -> Result:
    del op
    node.attributes["mode"] = ir.AttrString("mode", _NEW_MODES[attribute(node, "mode", "bilinear")])
    return None


def _dft(node: ir.Node, op: Writer) -> Result:
    axis = attribute(node, "axis", 1)
    no_longer(node, "axis")
    node.resize_inputs(3)
    node.replace_input_with(2, op.number(axis))
    return None


_of = examples_at(19)

RULES = {
    "GridSample": Rule(
        _grid_sample,
        _of(
            'y = GridSample <mode = "bicubic"> (x, grid)',
            "float[2,3,4,5] x, float[2,3,2,2] grid",
            "float[2,3,3,2] y",
        ),
    ),
    "DFT": Rule(_dft, _of("y = DFT <axis = 1> (x)", "float[2,6,2] x", "float[2,6,2] y")),
}
