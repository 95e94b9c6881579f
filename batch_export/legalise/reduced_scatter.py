"""ScatterND and ScatterElements that combine with what is there, for opsets whose own only overwrite.

One update after the other goes through a Loop, so that several at one place all count, in their order, as in the
operators of later opsets.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from batch_export.legalise.rules import NoForm, Result, attribute, first, needed, rank
from batch_export.legalise.writing import Writer

_INPUTS = {
    "ScatterND": ("", "float[4,2] x, float[3,2] u", "float[4,2] y", "int64[3,1] i = {1, 3, 1}"),
    "ScatterElements": (
        "axis = 1, ",
        "float[2,4] x, float[2,3] u",
        "float[2,4] y",
        "int64[2,3] i = {0, 2, 0, 3, 3, 1}",
    ),
}
_COMBINE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}


def example(name: str, reduction: str) -> tuple[str, ...]:
    """The arguments of an example of one of the two operators, some of whose updates meet at one place."""
    attributes, inputs, outputs, indices = _INPUTS[name]
    return f'y = {name} <{attributes}reduction = "{reduction}"> (x, i, u)', inputs, outputs, indices


def scatter_nd(node: ir.Node, op: Writer) -> Result:
    """ScatterND with a reduction."""
    data, indices, updates = first(node), needed(node, 1), needed(node, 2)
    end = op.number([np.iinfo(np.int64).max])
    known_depth = indices.shape[-1] if indices.shape is not None else None
    depth = (
        op.number([known_depth]) if isinstance(known_depth, int) else op.Slice(op.Shape(indices), op.number([-1]), end)
    )
    # Updates [count, *rest of data's shape] at index tuples [count, depth].
    rows = op.Reshape(indices, op.Concat(op.number([-1]), depth, axis=0))
    inner = op.Slice(op.Shape(data), depth, end)
    count = op.Slice(op.Shape(rows), op.number([0]), op.number([1]))
    listed = op.Reshape(updates, op.Concat(count, inner, axis=0))
    return _one_after_the_other(node, op, data, rows, listed)


def scatter_elements(node: ir.Node, op: Writer) -> Result:
    """ScatterElements with a reduction, as updates of single elements."""
    data, indices, updates = first(node), needed(node, 1), needed(node, 2)
    axes = rank(data, "ScatterElements with a reduction")
    axis = attribute(node, "axis", 0) % axes
    # Coordinates of each element of `indices`, of which the one along `axis` is the index itself.
    places = _grid(op, indices, axes)
    flat = op.Reshape(op.Cast(indices, to=ir.DataType.INT64), op.number([-1, 1]))
    columns = [flat if place == axis else places[place] for place in range(axes)]
    rows = columns[0] if axes == 1 else op.Concat(*columns, axis=1)
    return _one_after_the_other(node, op, data, rows, op.Reshape(updates, op.number([-1])))


def _grid(op: Writer, indices: ir.Value, axes: int) -> list[ir.Value]:
    """For each axis the coordinates of the elements of `indices` in order, as columns `int64[elements, 1]`."""
    shape = op.Shape(indices)
    columns = []
    for place in range(axes):
        size = op.Gather(shape, op.number(place))
        along = op.Reshape(op.Range(op.number(0), size, op.number(1)), op.number([-1] + [1] * (axes - 1 - place)))
        columns.append(op.Reshape(op.Expand(along, shape), op.number([-1, 1])))
    return columns


def _one_after_the_other(node: ir.Node, op: Writer, data: ir.Value, rows: ir.Value, updates: ir.Value) -> ir.Value:
    reduction = attribute(node, "reduction", "none")
    if reduction not in _COMBINE:
        raise NoForm(f"{node.op_type} with reduction={reduction!r}")
    count = op.Gather(op.Shape(rows), op.number(0))
    body = Writer()
    place = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))
    going = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    state = ir.Value(type=data.type, shape=data.shape)
    here = body.Unsqueeze(place, body.number([0]))
    row, update = body.Gather(rows, here, axis=0), body.Gather(updates, here, axis=0)
    combined = getattr(body, _COMBINE[reduction])(body.GatherND(state, row), update)
    after, still = body.ScatterND(state, row, combined), body.Identity(going)
    after.type, after.shape = data.type, data.shape
    still.type, still.shape = going.type, going.shape
    graph = ir.Graph([place, going, state], [still, after], nodes=body.nodes)
    keep_on = op.number(True, ir.DataType.BOOL)
    return op.several("Loop", [count, keep_on, data], 1, body=ir.AttrGraph("body", graph))[0]
