"""What is known of a tensor's numbers where weights have content: that all are one, or between which two they lie.

A mask that chooses between 0 and the lowest finite number, added to a table, never is -inf: nothing has to be kept from
rows that exclude everything.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch._subclasses.fake_tensor import FakeTensor

from batch_export.exporter.graph.magnitude import MOVES
from batch_export.exporter.optimise import weight_values

_DEPTH = 24
"""Nodes looked at one behind the other; what lies further back is not known."""
_EXTREMES = frozenset(("ReduceMax", "ReduceMin", "Cast"))
_ARITHMETIC: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
}
_FOLLOWED = frozenset((*MOVES, *_EXTREMES, *_ARITHMETIC, "Equal"))


def content(value: ir.Value | None) -> torch.Tensor | None:
    """What an initializer holds, None where it is none, or has no content or no element."""
    if value is None or not value.is_initializer() or value.is_graph_input():
        return None
    held = weight_values.as_tensor(value.const_value)
    return None if held is None or isinstance(held, FakeTensor) or not held.numel() else held


def everywhere(value: ir.Value | None, depth: int = _DEPTH) -> torch.Tensor | None:
    """The one number that all elements are, as a tensor without axes; None where that is not known."""
    if value is None or depth == 0:
        return None
    held = content(value)
    if held is not None:
        first = held.flatten()[0]
        return first if bool((held == first).all()) else None
    node = value.producer()
    if node is None or node.domain or not node.inputs:
        return None
    if node.op_type in MOVES or node.op_type in _EXTREMES:
        found = everywhere(node.inputs[0], depth - 1)
        return found if found is None or node.op_type != "Cast" else _cast(found, value)
    if node.op_type in _ARITHMETIC:
        if any(map(_leads_nowhere, node.inputs)):
            return None
        one, other = (everywhere(one, depth - 1) for one in node.inputs)
        return None if one is None or other is None else _ARITHMETIC[node.op_type](one, other)
    if node.op_type == "Equal":
        return _never_equal(node, depth)
    return None


def _leads_nowhere(value: ir.Value | None) -> bool:
    """Whether an operator makes a value of which nothing is known: the other side of a sum need not be looked at."""
    node = None if value is None else value.producer()
    return node is not None and (bool(node.domain) or node.op_type not in _FOLLOWED)


def _cast(number: torch.Tensor, value: ir.Value) -> torch.Tensor | None:
    if value.dtype is None:
        return None
    try:
        return number.to(tensor_adapters.to_torch_dtype(value.dtype))
    except (TypeError, ValueError):
        return None


def _never_equal(node: ir.Node, depth: int) -> torch.Tensor | None:
    """False where one side is a number that the other one cannot be."""
    for one, other in (node.inputs, tuple(reversed(node.inputs))):
        number = everywhere(one, depth - 1)
        if number is None or not number.is_floating_point():
            continue
        limits = _bounds(other, depth - 1)
        if limits is not None and bool((number < limits[0]) | (number > limits[1])):
            return torch.tensor(False)
    return None


_Bounds = tuple[torch.Tensor, torch.Tensor]


def _bounds(value: ir.Value | None, depth: int) -> _Bounds | None:
    """The smallest and the largest number that an element can be, in the tensor's dtype; None where NaN may be one."""
    if value is None or depth == 0:
        return None
    held = content(value)
    if held is not None:
        limits = (held.min(), held.max()) if held.is_floating_point() else None
        return None if limits is None or bool(limits[0].isnan()) else limits
    node = value.producer()
    if node is None or node.domain or not node.inputs:
        return None
    if node.op_type in MOVES:
        return _bounds(node.inputs[0], depth - 1)
    if node.op_type == "Cast":
        return _of_truth(node, value)
    if node.op_type not in ("Where", *_ARITHMETIC):
        return None
    one, other = (_bounds(each, depth - 1) for each in node.inputs[-2:])
    if one is None or other is None:
        return None
    if node.op_type == "Where":
        return torch.minimum(one[0], other[0]), torch.maximum(one[1], other[1])
    ends = torch.stack([_ARITHMETIC[node.op_type](low, high) for low in one for high in other])
    return None if bool(ends.isnan().any()) else (ends.min(), ends.max())


def _of_truth(node: ir.Node, value: ir.Value) -> _Bounds | None:
    source = node.inputs[0]
    if source is None or source.dtype != ir.DataType.BOOL or value.dtype is None:
        return None
    limits = (_cast(torch.tensor(False), value), _cast(torch.tensor(True), value))
    return (
        None if limits[0] is None or limits[1] is None or not limits[0].is_floating_point() else (limits[0], limits[1])
    )
