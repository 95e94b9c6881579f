"""Opset 16 -> 15: sampling at grids, and scatters that combine, written with what there was."""

from __future__ import annotations

import onnx_ir as ir

from batch_export.legalise import reduced_scatter
from batch_export.legalise.examples import examples_at
from batch_export.legalise.grid_sampling import grid_sample
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, no_longer
from batch_export.legalise.writing import Writer


def _scatter(node: ir.Node, op: Writer) -> Result:
    if attribute(node, "reduction", "none") == "none":
        no_longer(node, "reduction")
        return None
    return (reduced_scatter.scatter_nd if node.op_type == "ScatterND" else reduced_scatter.scatter_elements)(node, op)


def _roi_align(node: ir.Node, op: Writer) -> Result:
    del op
    if attribute(node, "coordinate_transformation_mode", "half_pixel") != "output_half_pixel":
        raise NoForm("RoiAlign with coordinate_transformation_mode='half_pixel'")
    no_longer(node, "coordinate_transformation_mode")
    return None


_of = examples_at(16)

RULES = {
    "GridSample": Rule(
        grid_sample,
        _of(
            'y = GridSample <mode = "bilinear", padding_mode = "zeros"> (x, grid)',
            "float[2,3,4,5] x, float[2,3,2,2] grid",
            "float[2,3,3,2] y",
        ),
        "images of other than two dimensions",
    ),
    "ScatterND": Rule(_scatter, _of(*reduced_scatter.example("ScatterND", "add"))),
    "ScatterElements": Rule(_scatter, _of(*reduced_scatter.example("ScatterElements", "add"))),
    "RoiAlign": Rule(
        _roi_align,
        _of(
            'y = RoiAlign <coordinate_transformation_mode = "output_half_pixel", output_height = 2, output_width = 2>'
            " (x, rois, batch)",
            "float[1,2,6,6] x",
            "float[1,2,2,2] y",
            "float[1,4] rois = {0.0, 0.0, 4.0, 4.0}, int64[1] batch = {0}",
        ),
        "coordinate_transformation_mode=half_pixel",
    ),
}
