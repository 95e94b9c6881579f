"""Numbers that data choose, which are tensors in a capture, beside tensors of another dtype.

Arrives: a captured program. Leaves: whether such a number gives something another dtype than Python's number does: a
tensor of one element has a say in the dtype of others of one element (`x[i] * n` of 8 bits), and a fraction in that of
whole numbers; Python's have none. Such a program computes something else than the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import torch
from torch import fx
from torch._higher_order_ops.while_loop import while_loop_op

_WIDE = {torch.int64: 1, torch.float64: 1.0}
"""The dtypes of numbers as tensors, and a number of the kind."""
_MADE = (torch.ops.aten.where.self, torch.ops.aten.full.default, torch.ops.aten.scalar_tensor.default)
"""What gives such a tensor, besides rounds that go on."""


def give_another_dtype(program: torch.export.ExportedProgram) -> bool:
    """Returns whether such a number makes a difference somewhere."""
    graphs = [one for one in program.graph_module.modules() if isinstance(one, fx.GraphModule)]
    carried = dict(_carried(graphs))
    for graph in graphs:
        given = [node for node in graph.graph.nodes if node.op == "placeholder"]
        numbers = {node for node in given[: carried.get(graph, 0)] if _is_wide(node)}
        for node in graph.graph.nodes:
            if node.op == "call_function" and _makes_another(node, numbers):
                return True
            if _is_wide(node) and _is_number(node, numbers):
                numbers.add(node)
    return False


def _carried(graphs: Iterable[fx.GraphModule]) -> Iterator[tuple[fx.GraphModule, int]]:
    """The graphs of what decides and of rounds, each with how many of its inputs go on from round to round."""
    for graph in graphs:
        for node in graph.graph.nodes:
            if node.op == "call_function" and node.target is while_loop_op:
                for one in node.args[:2]:
                    yield getattr(graph, str(one.target)), len(node.args[2])


def _value(node: object) -> torch.Tensor | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def _is_wide(node: object) -> bool:
    value = _value(node)
    return value is not None and not value.dim() and value.dtype in _WIDE


def _is_number(node: fx.Node, numbers: Collection[fx.Node]) -> bool:
    """Whether a node may stand for a number: it was chosen, or went on, or is computed of such alone."""
    if node.op != "call_function":
        return False
    given = [one for one in node.all_input_nodes if _value(one) is not None]
    if node.target in _MADE or (given and all(one in numbers for one in given)):
        return True
    (source, *_) = node.all_input_nodes or (None,)
    return isinstance(source, fx.Node) and source.target is while_loop_op


def _makes_another(node: fx.Node, numbers: Collection[fx.Node]) -> bool:
    """Whether of a number of Python's the operator would give another dtype."""
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.pointwise not in node.target.tags:
        return False
    given = [one for one in node.all_input_nodes if _value(one) is not None]
    if node.target is torch.ops.aten.where.self:
        given = [one for one in node.args[1:] if isinstance(one, fx.Node)]
    wide = [one for one in given if one in numbers]
    others = [value for one in given if one not in numbers and (value := _value(one)) is not None]
    if not wide or len(others) != 1:
        return False
    (other,) = others
    return any(
        torch.result_type(_alike(other), _alike(value)) is not torch.result_type(_alike(other), _WIDE[value.dtype])
        for one in wide
        if (value := _value(one)) is not None
    )


def _alike(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the same dtype with as many axes, or none, as a dtype goes by."""
    return torch.empty((1,) if value.dim() else (), dtype=value.dtype)
