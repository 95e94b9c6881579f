"""Opset 15 -> 16: RoiAlign names the coordinates that it had before."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import Result, Rule
from batch_export.legalise.writing import Writer


def _roi_align(node: ir.Node, op: Writer) -> Result:
    del op
    name = "coordinate_transformation_mode"
    node.attributes[name] = ir.AttrString(name, "output_half_pixel")
    return None


_of = examples_at(15)

RULES = {
    "RoiAlign": Rule(
        _roi_align,
        _of(
            "y = RoiAlign <output_height = 2, output_width = 2> (x, rois, batch)",
            "float[1,2,6,6] x",
            "float[1,2,2,2] y",
            "float[1,4] rois = {0.0, 0.0, 4.0, 4.0}, int64[1] batch = {0}",
        ),
    )
}
