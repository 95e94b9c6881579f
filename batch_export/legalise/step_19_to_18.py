"""Opset 19 -> 18: what pooling and resizing learnt has no form, unless it says what the earlier operators do."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, no_longer
from batch_export.legalise.writing import Writer


def _average(node: ir.Node, op: Writer) -> Result:
    del op
    if any(step != 1 for step in attribute(node, "dilations", ())):
        raise NoForm("an AveragePool with dilations")
    no_longer(node, "dilations")
    return None


def _pad(node: ir.Node, op: Writer) -> Result:
    del op
    if attribute(node, "mode", "constant") == "wrap":
        raise NoForm("a Pad that wraps around")
    return None


def _resize(node: ir.Node, op: Writer) -> Result:
    del op
    if attribute(node, "coordinate_transformation_mode", "half_pixel") == "half_pixel_symmetric":
        raise NoForm("a Resize with coordinate_transformation_mode='half_pixel_symmetric'")
    return None


_of = examples_at(19)

RULES = {
    "AveragePool": Rule(
        _average,
        _of("y = AveragePool <kernel_shape = [2], dilations = [1]> (x)", "float[1,2,6] x", "float[1,2,5] y"),
        "dilations",
    ),
    "Pad": Rule(_pad, _of("y = Pad (x, p)", "float[3] x", "float[5] y", "int64[2] p = {1, 1}"), "mode=wrap"),
    "Resize": Rule(
        _resize,
        _of(
            'y = Resize <mode = "linear"> (x, , s)', "float[1,2,3] x", "float[1,2,6] y", "float[3] s = {1.0, 1.0, 2.0}"
        ),
        "coordinate_transformation_mode=half_pixel_symmetric",
    ),
}
