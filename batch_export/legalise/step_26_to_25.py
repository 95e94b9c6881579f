"""Opset 26 -> 25: running products, element after element. Numbers read as others of the same bits have no form."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.examples import examples_at
from batch_export.legalise.rules import NoForm, Result, Rule, attribute, first, given, known, rank
from batch_export.legalise.writing import Writer


def _running_product(node: ir.Node, op: Writer) -> Result:
    value, place = first(node), known(given(node, 1))
    if place is None:
        raise NoForm("CumProd along an axis that is computed")
    if value.dtype is None:
        raise NoForm("CumProd of an unknown dtype")
    axes = rank(value, "CumProd")
    axis = int(place.reshape(())) % axes
    others = [one for one in range(axes) if one != axis]
    slice_type, slice_shape = ir.TensorType(value.dtype), ir.Shape([None] * len(others))
    so_far, each = (ir.Value(type=slice_type, shape=slice_shape) for _ in range(2))
    body = Writer()
    after = body.Mul(so_far, each)
    shown = body.Identity(so_far if attribute(node, "exclusive", 0) else after)
    for output in (after, shown):
        output.type, output.shape = slice_type, slice_shape
    shape = op.Gather(op.Shape(value), op.number(np.asarray(others, np.int64)))
    one = op.Expand(op.like(1, value), shape)
    graph = ir.Graph([so_far, each], [after, shown], nodes=body.nodes)
    backwards = int(attribute(node, "reverse", 0))
    return op.several(
        "Scan",
        [one, value],
        2,
        body=ir.AttrGraph("body", graph),
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
        scan_input_directions=[backwards],
        scan_output_directions=[backwards],
    )[1:]


_of = examples_at(26)

RULES = {
    "CumProd": Rule(
        _running_product,
        _of("y = CumProd <exclusive = 1, reverse = 1> (x, a)", "float[2,3,4] x", "float[2,3,4] y", "int64 a = {1}"),
        "an axis that is computed",
    ),
}
