"""Sums and means in fewer operators, where nothing that is computed of them changes.

Arrives: a model and a node of it. Leaves: 1 where a shorter form took the node's place, else 0. Weights are not looked
at.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.exporter.optimise.edits import insert, known, only_use

_SQUARED_DTYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""dtypes of which the runtime's kernel takes squares itself."""


def sum_of_squares(model: ir.Model, node: ir.Node) -> int:
    """A sum of a value's products with itself: a sum of squares."""
    product = None if node.inputs[0] is None else node.inputs[0].producer()
    if product is None or product.domain or product.outputs[0].is_graph_output() or not _squares(product):
        return 0
    others = [(user, place) for user, place in product.outputs[0].uses() if user is not node]
    if any(user.domain or not _reads_form(user, place) for user, place in others):
        return 0
    squared, axes = product.inputs[0], [one for one in node.inputs[1:] if one is not None]
    if squared is None or squared.dtype not in _SQUARED_DTYPES or node.graph is not product.graph:
        return 0
    if len(axes) < len(node.inputs) - 1 or node.attributes.get_int("noop_with_empty_axes", 0) != 0:
        return 0  # what is not reduced is not squared either, in some runtimes
    for user, place in others:
        user.replace_input_with(place, squared)
    attributes = {name: node.attributes[name].value for name in node.attributes}
    insert(node, "ReduceSumSquare", [squared, *axes], attributes, [node])
    return 1


def _squares(node: ir.Node) -> bool:
    """Whether a node multiplies a value with itself."""
    if node.inputs[0] is None:
        return False
    exponent = known(node.inputs[1]) if node.op_type == "Pow" else None
    if exponent is not None:
        return exponent.ndim == 0 and bool(exponent == 2)
    return node.op_type == "Mul" and node.inputs[0] is node.inputs[1]


def _reads_form(user: ir.Node, place: int) -> bool:
    """Whether nothing but a value's shape or dtype is read."""
    return user.op_type in ("Shape", "Size") or (user.op_type == "CastLike" and place == 1)


def compared_mean(model: ir.Model, node: ir.Node) -> int:
    """A sum over how many there are, NaN for none, that is only held against numbers to which 0 compares as NaN does.

    A mean operator leaves the mean of nothing undefined, and runtimes give 0 or NaN.
    """
    total, count = only_use(node.inputs[0], "ReduceSum"), _counted(node.inputs[1])
    if total is None or count is None or total.inputs[0] is not count.inputs[0] or total.graph is not node.graph:
        return 0
    data = total.inputs[0]
    if data is None or data.dtype not in _SQUARED_DTYPES or data.shape is None or not _is_over(total, count):
        return 0
    result = node.outputs[0]
    if result.is_graph_output() or not all(_takes_nan_for_zero(user, place) for user, place in result.uses()):
        return 0
    if any(user is not total and user.op_type == "ReduceSum" for user, _ in data.uses()):
        return 0  # another mean of the same, of which one sum is enough
    keepdims = total.attributes.get_int("keepdims", 1)
    axes = [one for one in total.inputs[1:] if one is not None]
    insert(node, "ReduceMean", [data, *axes], {"keepdims": keepdims}, [node])
    return 1


def _counted(value: ir.Value | None) -> ir.Node | None:
    """The Size or Shape of which a value is a cast."""
    cast = None if value is None else value.producer()
    if cast is None or cast.domain or cast.op_type not in ("Cast", "CastLike") or cast.inputs[0] is None:
        return None
    counted = cast.inputs[0].producer()
    return counted if counted is not None and not counted.domain and counted.op_type in ("Size", "Shape") else None


def _is_over(total: ir.Node, count: ir.Node) -> bool:
    """Whether a sum is over as many elements as a Size, or a Shape of one axis, says."""
    assert total.inputs[0] is not None
    assert total.inputs[0].shape is not None
    rank, axes = len(total.inputs[0].shape), known(total.inputs[1]) if len(total.inputs) > 1 else None
    if len(total.inputs) > 1 and total.inputs[1] is not None and (axes is None or not axes.size):
        return False
    reduced = list(range(rank)) if axes is None else sorted({int(axis) % rank for axis in axes.tolist()})
    if total.attributes.get_int("noop_with_empty_axes", 0):
        return False
    if count.op_type == "Size":
        return reduced == list(range(rank))
    first, last = count.attributes.get_int("start", 0), count.attributes.get_int("end", rank)
    scalar = rank == 1 and not total.attributes.get_int("keepdims", 1)  # divided by a list of one it is a list
    return not scalar and list(range(rank))[first:last] == reduced and len(reduced) == 1


def _takes_nan_for_zero(user: ir.Node, place: int) -> bool:
    """Whether a comparison with a constant is as false for 0 as it is for NaN."""
    if user.domain or len(user.inputs) != 2:
        return False
    limit = known(user.inputs[1 - place])
    if limit is None or limit.dtype.kind != "f":
        return False
    is_false = {
        "Greater": (limit >= 0, limit <= 0),
        "Less": (limit <= 0, limit >= 0),
        "GreaterOrEqual": (limit > 0, limit < 0),
        "LessOrEqual": (limit < 0, limit > 0),
        "Equal": (limit != 0, limit != 0),
    }.get(user.op_type)
    return is_false is not None and bool(np.all(is_false[place]))
