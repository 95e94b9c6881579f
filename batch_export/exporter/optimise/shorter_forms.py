"""Fewer operators that say the same: forms that translations write one operator at a time, in one operator.

Arrives: an `onnx_ir.Model`. Leaves: the same model, changed in place. Every form here moves the same elements or
computes the same number; the one that rounds differently (a product with a reciprocal of a root is a quotient) rounds
once less. Weights are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph import weights

_SPLIT_DTYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT32, ir.DataType.INT64)


def shorten(model: ir.Model) -> int:
    """Rewrites in place; returns how many forms became shorter."""
    return sum(
        _FORMS[node.op_type](model, node)
        for graph in (model.graph, *model.graph.subgraphs())
        for node in list(graph)
        if node.domain == "" and node.op_type in _FORMS and node.graph is graph
    )


def _known(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The content of a constant that the exporter made."""
    if value is None or value.const_value is None or weights.is_torch_tensor(value) or value.is_graph_input():
        return None
    return None if value.dtype == ir.DataType.STRING else value.const_value.numpy()


def _same_size(one: Any, other: Any) -> bool:
    """Whether two sizes are one: the same number, or the same expression of free axes."""
    if isinstance(one, int) or isinstance(other, int):
        return isinstance(one, int) and isinstance(other, int) and one == other
    return one.value is not None and one.value == other.value


def same_sizes(one: Sequence[Any] | ir.Shape | None, other: Sequence[Any] | ir.Shape | None) -> bool:
    """Whether two shapes are known and one."""
    return one is not None and other is not None and len(one) == len(other) and all(map(_same_size, one, other))


def _constant(model: ir.Model, array: np.ndarray[Any, Any], stem: str) -> ir.Value:
    initializers, number = model.graph.initializers, 0
    while f"{stem}_{number}" in initializers:
        number += 1
    content = ir.Tensor(array, name=f"{stem}_{number}")
    value = ir.Value(
        name=content.name, type=ir.TensorType(content.dtype), shape=ir.Shape(array.shape), const_value=content
    )
    initializers[f"{stem}_{number}"] = value
    return value


def _insert(
    before: ir.Node, name: str, inputs: Sequence[ir.Value], attributes: dict[str, Any], old: Sequence[ir.Node]
) -> None:
    """Puts one node in the place of others: its outputs are theirs, in order."""
    outputs = [
        ir.Value(name=f"{node.outputs[0].name}_short", type=node.outputs[0].type, shape=node.outputs[0].shape)
        for node in old
    ]
    made = ir.node(name, inputs, attributes, outputs=outputs)
    for node in old:
        for key, text in node.metadata_props.items():
            made.metadata_props.setdefault(key, text)
    made.name = f"{before.name}_short"
    assert before.graph is not None
    before.graph.insert_before(before, made)
    for node, output in zip(old, outputs, strict=True):
        (replaced,) = node.outputs
        final, properties = replaced.name, dict(replaced.metadata_props)
        ir.convenience.replace_all_uses_with(replaced, output, replace_graph_outputs=True)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        replaced.name = None
        output.name = final
        output.metadata_props.update(properties)


def _keeps_shape(model: ir.Model, node: ir.Node) -> int:
    """A Reshape or an Expand to the shape that its input has already."""
    given, made = node.inputs[0], node.outputs[0]
    if given is None or made.is_graph_output():
        return 0
    if not same_sizes(given.shape, made.shape) and not same_sizes(given.shape, _asked_for(node)):
        return 0
    ir.convenience.replace_all_uses_with(made, given)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return 1


def _asked_for(node: ir.Node) -> list[int] | None:
    """The shape that a Reshape or an Expand makes of a fixed one, where a constant asks for it."""
    given, asked = node.inputs[0], _known(node.inputs[1])
    if given is None or given.shape is None or asked is None:
        return None
    if node.op_type == "Expand":
        return _broadcast(given.shape, node.inputs[1])
    wanted = [int(one) for one in asked.tolist()]
    return wanted if all(size > 0 for size in wanted) else None


def _broadcast(sizes: Sequence[Any] | ir.Shape, asked: ir.Value | None) -> list[int] | None:
    """The shape that fixed sizes have once they are expanded to a constant one."""
    wanted, have = _known(asked), [one for one in sizes if isinstance(one, int)]
    if wanted is None or len(have) != len(sizes):
        return None
    try:
        return list(np.broadcast_shapes(tuple(have), tuple(int(one) for one in wanted.tolist())))
    except ValueError:
        return None


def _concat(model: ir.Model, node: ir.Node) -> int:
    """A Concat of one part."""
    if len(node.inputs) != 1 or node.inputs[0] is None or node.outputs[0].is_graph_output():
        return 0
    ir.convenience.replace_all_uses_with(node.outputs[0], node.inputs[0])
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return 1


def _only_use(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that makes a value for one other node alone."""
    producer = None if value is None else value.producer()
    if producer is None or producer.domain or producer.op_type != op_type:
        return None
    assert value is not None
    return producer if len(value.uses()) == 1 and not value.is_graph_output() else None


def _reshape(model: ir.Model, node: ir.Node) -> int:
    return _keeps_shape(model, node) or _repeats(model, node)


def _repeats(model: ir.Model, node: ir.Node) -> int:
    """Unsqueeze, Expand and Reshape that repeat each entry of an axis: a Gather of the entries, each several times."""
    expand = _only_use(node.inputs[0], "Expand")
    unsqueeze = None if expand is None else _only_use(expand.inputs[0], "Unsqueeze")
    if expand is None or unsqueeze is None:
        return 0
    data, axes = unsqueeze.inputs[0], _known(unsqueeze.inputs[1])
    wide: Sequence[Any] | ir.Shape | None = expand.outputs[0].shape
    result = node.outputs[0].shape
    if data is None or data.shape is None or axes is None or axes.size != 1 or result is None:
        return 0
    sizes = list(data.shape)
    place = int(axes.item()) % (len(sizes) + 1)
    if wide is None:
        wide = _broadcast([*sizes[:place], 1, *sizes[place:]], expand.inputs[1])
    if wide is None or place == 0 or len(wide) != len(sizes) + 1 or len(result) != len(sizes):
        return 0
    entries, times = sizes[place - 1], wide[place]
    if not isinstance(entries, int) or not isinstance(times, int) or entries * times > 4096:
        return 0
    if not same_sizes([*sizes[:place], times, *sizes[place:]], wide):
        return 0
    if not same_sizes([*sizes[: place - 1], entries * times, *sizes[place:]], result):
        return 0
    indices = _constant(model, np.repeat(np.arange(entries, dtype=np.int64), times), "repeated")
    _insert(node, "Gather", [data, indices], {"axis": place - 1}, [node])
    return 1


def _turned(model: ir.Model, node: ir.Node) -> int:
    """An axis of 1 that is added, moved and taken away again: a Transpose of the others."""
    transpose = _only_use(node.inputs[0], "Transpose")
    unsqueeze = None if transpose is None else _only_use(transpose.inputs[0], "Unsqueeze")
    if transpose is None or unsqueeze is None or len(node.inputs) < 2 or "perm" not in transpose.attributes:
        return 0
    order, added, removed = (
        list(transpose.attributes["perm"].as_ints()),
        *map(_known, (unsqueeze.inputs[1], node.inputs[1])),
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
        _insert(node, "Transpose", [unsqueeze.inputs[0]], {"perm": perm}, [node])
    return 1


_BLIND = frozenset(("Softmax", "LogSoftmax", "Exp", "Abs", "Cos", "Equal", "Less", "Greater", "IsNaN", "ReduceL2"))
_CARRIERS = frozenset(("Add", "Mul", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Identity"))
_STEPS = 4


def _is_blind(value: ir.Value, steps: int = _STEPS) -> bool:
    """Whether nothing that uses a value tells 0.0 from -0.0."""
    if value.is_graph_output() or not steps:
        return False
    return all(
        not user.domain
        and (user.op_type in _BLIND or (user.op_type in _CARRIERS and _is_blind(user.outputs[0], steps - 1)))
        for user, _ in value.uses()
    )


def _plus_nothing(model: ir.Model, node: ir.Node) -> int:
    """x + 0.0, which is x but for x = -0.0, where nobody tells the two apart."""
    made = node.outputs[0]
    for zeros, other in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        content = _known(zeros)
        if content is None or other is None or content.dtype.kind != "f" or not content.size or np.any(content):
            continue
        if not same_sizes(other.shape, made.shape) or not _is_blind(made):
            continue
        ir.convenience.replace_all_uses_with(made, other)
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        return 1
    return 0


def _quotient(model: ir.Model, node: ir.Node) -> int:
    """x * Reciprocal(Sqrt(v)) is x / Sqrt(v), in which runtimes also recognise a root mean square norm."""
    if node.outputs[0].dtype != ir.DataType.FLOAT:
        return 0
    for factor, other in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        reciprocal = _only_use(factor, "Reciprocal")
        if reciprocal is None or other is None or factor is other:
            continue
        root = reciprocal.inputs[0]
        producer = None if root is None else root.producer()
        if root is None or producer is None or producer.op_type != "Sqrt" or producer.domain:
            continue
        _insert(node, "Div", [other, root], {}, [node])
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
    split = _constant(model, np.asarray(lengths, dtype=np.int64), "pieces")
    _insert(earliest, "Split", [data, split], {"axis": axis}, chain)
    return 1


def _piece(node: ir.Node) -> tuple[int, int, int, int] | None:
    """Axis, start, end and the axis's size, of a Slice of one axis by steps of 1; None for any other."""
    data = node.inputs[0]
    parts = [_known(value) for value in node.inputs[1:]]
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
        content = _known(value)
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
    "Reshape": _reshape,
    "Concat": _concat,
    "Expand": _keeps_shape,
    "Mul": _quotient,
    "Add": _plus_nothing,
    "Squeeze": _turned,
    "Slice": _pieces,
    "LSTM": _zero_states,
    "GRU": _zero_states,
    "RNN": _zero_states,
}
