"""Operators that do nothing: what gives its input back, element by element, is left out.

Arrives: a model and a node of it. Leaves: 1 where the node went, its input in its place; else 0. Weights are not looked
at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from batch_export.exporter.optimise.edits import known, same_sizes, taken_out


def keeps_shape(model: ir.Model, node: ir.Node) -> int:
    """A Reshape or an Expand to the shape that its input has already."""
    given, made = node.inputs[0], node.outputs[0]
    if given is None or made.is_graph_output():
        return 0
    if not same_sizes(given.shape, made.shape) and not same_sizes(given.shape, _asked_for(node)):
        return 0
    return taken_out(node, given)


def of_one(model: ir.Model, node: ir.Node) -> int:
    """A Concat, a largest or a smallest of one part."""
    if len(node.inputs) != 1 or node.inputs[0] is None or node.outputs[0].is_graph_output():
        return 0
    return taken_out(node, node.inputs[0])


_HOLDS: dict[ir.DataType, frozenset[ir.DataType]] = {
    ir.DataType.FLOAT16: frozenset((ir.DataType.FLOAT, ir.DataType.DOUBLE)),
    ir.DataType.BFLOAT16: frozenset((ir.DataType.FLOAT, ir.DataType.DOUBLE)),
    ir.DataType.FLOAT: frozenset((ir.DataType.DOUBLE,)),
    ir.DataType.INT32: frozenset((ir.DataType.INT64, ir.DataType.DOUBLE)),
}
"""By dtype those that hold each of its values."""


def there_and_back(model: ir.Model, node: ir.Node) -> int:
    """A Cast to a wider dtype and back.

    ONNX Runtime (1.31) takes these out itself, without a look at the branches within a branch that read the value.
    """
    wide = node.inputs[0]
    before = None if wide is None else wide.producer()
    if wide is None or before is None or before.domain or before.op_type != "Cast":
        return 0
    given, made = before.inputs[0], node.outputs[0]
    if given is None or given.dtype is None or made.is_graph_output() or made.dtype != given.dtype:
        return 0
    return taken_out(node, given) if wide.dtype in _HOLDS.get(given.dtype, ()) else 0


def no_condition(model: ir.Model, node: ir.Node) -> int:
    """A condition that is true as well, or false or."""
    neutral = node.op_type == "And"
    made = node.outputs[0]
    for constants, other in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        content = known(constants)
        if content is None or other is None or content.dtype != np.bool_ or not bool(np.all(content == neutral)):
            continue
        if made.is_graph_output() or not (content.size == 1 and same_sizes(other.shape, made.shape)):
            continue
        return taken_out(node, other)
    return 0


_BLIND = frozenset(("Softmax", "LogSoftmax", "Exp", "Abs", "Cos", "Equal", "Less", "Greater", "IsNaN", "ReduceL2"))
_CARRIERS = frozenset(
    (
        "Add",
        "Mul",
        "Neg",
        "Where",
        "Transpose",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Expand",
        "Slice",
        "Concat",
        "Identity",
    )
)
_STEPS = 4


def _is_blind(value: ir.Value, steps: int = _STEPS) -> bool:
    """Whether nothing that uses a value distinguishes 0.0 from -0.0."""
    if value.is_graph_output() or not steps:
        return False
    return all(
        not user.domain
        and (user.op_type in _BLIND or (user.op_type in _CARRIERS and _is_blind(user.outputs[0], steps - 1)))
        for user, _ in value.uses()
    )


def plus_nothing(model: ir.Model, node: ir.Node) -> int:
    """x + 0.0, which is x but for x = -0.0, where nobody tells the two apart."""
    made = node.outputs[0]
    for zeros, other in ((node.inputs[0], node.inputs[1]), (node.inputs[1], node.inputs[0])):
        content = known(zeros)
        if content is None or other is None or content.dtype.kind != "f" or not content.size or np.any(content):
            continue
        if not same_sizes(other.shape, made.shape) or not _is_blind(made):
            continue
        return taken_out(node, other)
    return 0


def _asked_for(node: ir.Node) -> list[int] | None:
    """The shape that a Reshape or an Expand makes of a fixed one, where a constant asks for it."""
    given, asked = node.inputs[0], known(node.inputs[1])
    if given is None or given.shape is None or asked is None:
        return None
    if node.op_type == "Expand":
        return broadcast(given.shape, node.inputs[1])
    wanted = [int(one) for one in asked.tolist()]
    return wanted if all(size > 0 for size in wanted) else None


def broadcast(sizes: Sequence[object] | ir.Shape, asked: ir.Value | None) -> list[int] | None:
    """The shape that fixed sizes have once they are expanded to a constant one."""
    wanted, have = known(asked), [one for one in sizes if isinstance(one, int)]
    if wanted is None or len(have) != len(sizes):
        return None
    try:
        return list(np.broadcast_shapes(tuple(have), tuple(int(one) for one in wanted.tolist())))
    except ValueError:
        return None
