"""Fewer operators that say the same: forms that translations write one operator at a time, in one operator.

Arrives: an `onnx_ir.Model`. Leaves: the same model, changed in place. Every form here moves the same elements or
computes the same number; the one that rounds differently (a product with a reciprocal of a root is a quotient) rounds
once less. Weights are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from batch_export.exporter.optimise.edits import constant, insert, known, only_use
from batch_export.exporter.optimise.neutral_operators import (
    keeps_shape,
    no_condition,
    of_one,
    plus_nothing,
    there_and_back,
)
from batch_export.exporter.optimise.shorter_reductions import compared_mean, sum_of_squares
from batch_export.legalise.nested import graphs_of

_SPLIT_DTYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64)


def shorten(model: ir.Model) -> int:
    """Rewrites in place; returns how many forms became shorter."""
    return sum(
        _FORMS[node.op_type](model, node)
        for graph in graphs_of(model.graph)
        for node in list(graph)
        if node.domain == "" and node.op_type in _FORMS and node.graph is graph
    )


def _taken(model: ir.Model, node: ir.Node) -> int:
    """A GatherND by one index: a Gather from the first axis."""
    unsqueeze = only_use(node.inputs[1], "Unsqueeze")
    batched = node.attributes.get("batch_dims")
    if unsqueeze is None or (batched is not None and batched.as_int()) or node.inputs[0] is None:
        return 0
    places, axes = unsqueeze.inputs[0], known(unsqueeze.inputs[1])
    if places is None or axes is None or axes.size != 1:
        return 0
    if int(axes.item()) != -1 and (places.shape is None or int(axes.item()) != len(places.shape)):
        return 0
    insert(node, "Gather", [node.inputs[0], places], {"axis": 0}, [node])
    return 1


_CAST = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.BOOL)


def _cast(model: ir.Model, node: ir.Node) -> int:
    """A cast to another value's dtype, where that is known, in which runtimes need not look at the other value."""
    given, like = node.inputs
    dtype = None if like is None else like.dtype
    if given is None or dtype is None or not (dtype in _CAST or dtype.is_integer()):
        return 0
    insert(node, "Cast", [given], {"to": int(dtype)}, [node])
    return 1


def _axes_at_once(model: ir.Model, node: ir.Node) -> int:
    """Axes of 1 that are added one after the other."""
    before = only_use(node.inputs[0], "Unsqueeze")
    if before is None or before.inputs[0] is None or before.inputs[0].shape is None:
        return 0
    first, second = known(before.inputs[1]), known(node.inputs[1])
    if first is None or second is None:
        return 0
    rank = len(before.inputs[0].shape) + first.size
    inner = {int(axis) % rank for axis in first.tolist()}
    rank += second.size
    outer = {int(axis) % rank for axis in second.tolist()}
    left = [place for place in range(rank) if place not in outer]
    axes = sorted(outer | {left[place] for place in inner})
    insert(node, "Unsqueeze", [before.inputs[0], constant(model, np.asarray(axes, np.int64), "axes")], {}, [node])
    return 1


def _turned(model: ir.Model, node: ir.Node) -> int:
    """An axis of 1 that is added, moved and taken away again: a Transpose of the others."""
    transpose = only_use(node.inputs[0], "Transpose")
    unsqueeze = None if transpose is None else only_use(transpose.inputs[0], "Unsqueeze")
    if transpose is None or unsqueeze is None or len(node.inputs) < 2 or "perm" not in transpose.attributes:
        return 0
    order, added, removed = (
        list(transpose.attributes["perm"].as_ints()),
        *map(known, (unsqueeze.inputs[1], node.inputs[1])),
    )
    if added is None or removed is None or added.size != 1 or removed.size != 1 or unsqueeze.inputs[0] is None:
        return 0
    place, gone = int(added.item()) % len(order), int(removed.item()) % len(order)
    if order[gone] != place or node.outputs[0].is_graph_output():
        return 0
    perm = [axis - (axis > place) for axis in order if axis != place]
    if perm == sorted(perm):
        ir.convenience.replace_all_uses_with(node.outputs[0], unsqueeze.inputs[0])
        assert node.graph is not None
        node.graph.remove(node, safe=True)
    else:
        insert(node, "Transpose", [unsqueeze.inputs[0]], {"perm": perm}, [node])
    return 1


def _quotient(model: ir.Model, node: ir.Node) -> int:
    """x * Reciprocal(Sqrt(v)) is x / Sqrt(v), in which runtimes also recognise a root mean square norm."""
    if node.outputs[0].dtype != ir.DataType.FLOAT:
        return 0
    for factor, other in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        reciprocal = only_use(factor, "Reciprocal")
        if reciprocal is None or other is None or factor is other:
            continue
        root = reciprocal.inputs[0]
        producer = None if root is None else root.producer()
        if root is None or producer is None or producer.op_type != "Sqrt" or producer.domain:
            continue
        insert(node, "Div", [other, root], {}, [node])
        return 1
    return 0


def _pieces(model: ir.Model, node: ir.Node) -> int:
    """Slices that together take all of an axis, piece by piece: one Split."""
    data = node.inputs[0]
    first = _piece(node)
    if data is None or first is None or first[1] != 0 or data.dtype not in _SPLIT_DTYPES:
        return 0
    axis, _, _, size = first
    found: dict[int, tuple[int, ir.Node]] = {}
    for user, index in data.uses():
        piece = _piece(user) if index == 0 and user.op_type == "Slice" and not user.domain else None
        if piece is not None and piece[0] == axis and user.graph is node.graph:
            found.setdefault(piece[1], (piece[2], user))
    chain: list[ir.Node] = []
    lengths: list[int] = []
    start = 0
    while start < size and start in found:
        end, user = found[start]
        chain.append(user)
        lengths.append(end - start)
        start = end
    if start != size or len(chain) < 2 or len({id(user) for user in chain}) != len(chain):
        return 0
    if any(user.outputs[0].is_graph_output() for user in chain):
        return 0
    assert node.graph is not None
    order = {id(one): place for place, one in enumerate(node.graph)}
    earliest = min(chain, key=lambda one: order[id(one)])
    split = constant(model, np.asarray(lengths, dtype=np.int64), "pieces")
    insert(earliest, "Split", [data, split], {"axis": axis}, chain)
    return 1


def _piece(node: ir.Node) -> tuple[int, int, int, int] | None:
    """Axis, start, end and the axis's size, of a Slice of one axis by steps of 1; None for any other."""
    data = node.inputs[0]
    parts = [known(value) for value in node.inputs[1:]]
    if data is None or data.shape is None or len(parts) < 3 or any(part is None for part in parts):
        return None
    starts, ends, axes, *steps = (part.flatten().tolist() for part in parts if part is not None)
    if len(starts) != 1 or len(ends) != 1 or len(axes) != 1 or any(step != [1] for step in steps):
        return None
    axis = axes[0] % len(data.shape)
    size = data.shape[axis]
    if not isinstance(size, int):
        return None
    start, end, _ = slice(starts[0], ends[0]).indices(size)
    return (axis, start, end, size) if start < end else None


def _zero_states(model: ir.Model, node: ir.Node) -> int:
    """First states of a recurrent layer that are zeros, which is what it begins with when it is given none."""
    places = [place for place in (5, 6) if place < len(node.inputs) and _is_zero(node.inputs[place])]
    for place in places:
        node.replace_input_with(place, None)
    return len(places)


_MOVES = ("Slice", "Split", "Expand", "Reshape", "Transpose", "Identity", "Unsqueeze", "Squeeze", "Gather")


def _is_zero(value: ir.Value | None) -> bool:
    """Whether every element is +0.0, whatever the shape."""
    while value is not None:
        content = known(value)
        if content is not None:
            return bool(content.dtype.kind == "f" and not np.any(content) and not np.any(np.signbit(content)))
        producer = value.producer()
        if producer is None or producer.domain:
            return False
        if producer.op_type == "ConstantOfShape":
            fill = producer.attributes.get("value")
            return fill is None or (not np.any(fill.value.numpy()) and not np.any(np.signbit(fill.value.numpy())))
        if producer.op_type == "Pad":
            extra = producer.inputs[2] if len(producer.inputs) > 2 else None
            constant = producer.attributes.get_string("mode", "constant") == "constant"
            if not constant or (extra is not None and not _is_zero(extra)):
                return False
        elif producer.op_type not in _MOVES:
            return False
        value = producer.inputs[0]
    return False


_FORMS: dict[str, Callable[[ir.Model, ir.Node], int]] = {
    "Reshape": keeps_shape,
    "Concat": of_one,
    "Max": of_one,
    "Min": of_one,
    "And": no_condition,
    "Or": no_condition,
    "Cast": there_and_back,
    "CastLike": _cast,
    "GatherND": _taken,
    "Unsqueeze": _axes_at_once,
    "Expand": keeps_shape,
    "Mul": _quotient,
    "Add": plus_nothing,
    "Div": compared_mean,
    "ReduceSum": sum_of_squares,
    "Squeeze": _turned,
    "Slice": _pieces,
    "LSTM": _zero_states,
    "GRU": _zero_states,
    "RNN": _zero_states,
}
