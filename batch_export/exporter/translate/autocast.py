"""What runs under autocast: the conversions that torch makes before an operator, written out.

torch keeps a part that runs under autocast as a graph of its own, in which an operator's result has another dtype than
its inputs would give it: torch converts these first, and rounds them by that. A translation sees the result alone, and
would round only that.

Arrives: such a graph. Leaves: one with the conversions in it; the given one stays as it is.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from batch_export.errors import TranslationError

_CONVERTING = frozenset({"aten::to", "aten::_to_copy", "aten::type_as", "prims::convert_element_type"})
_MIXED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


ENTERED = "torch.amp.autocast_mode::_enter_autocast"
"""Begins a part of a graph that is no submodule, since there are loops or branches in it that are operators."""


def is_on(node: torch.fx.Node) -> bool:
    """Whether autocast is switched on where it is entered, and not off."""
    return len(node.args) < 3 or bool(node.args[2])


def around_operators() -> TranslationError:
    """What is said of a part of a graph in which autocast is on around such operators."""
    return TranslationError(
        "autocast is on around a loop or a branch that is an operator of the file",
        next_step="switch it on within the loop's layers, or cast the module and the inputs in its place",
    )


def with_conversions(graph_module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with each floating-point input in the dtype in which autocast has its operator compute."""
    graph = torch.fx.Graph()
    output: Any = graph.graph_copy(graph_module.graph, {}, return_output_node=True)
    for node in list(graph.nodes):
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.name not in _CONVERTING:
            _convert_inputs(graph, node)
    if output is not None:
        value, original = output
        made = graph.output(value)
        made.meta = dict(original.meta)
    return torch.fx.GraphModule(graph_module, graph)


def _convert_inputs(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    dtype = _of_result(node)
    inputs = [one for one in node.all_input_nodes if _dtype(one) is not None]
    if dtype is None or not inputs or dtype == _promoted(inputs) or node.target._schema.is_mutable:  # type: ignore[union-attr]
        return
    for one in inputs:
        if _dtype(one) == dtype:
            continue
        with graph.inserting_before(node):
            converted = graph.call_function(torch.ops.aten.to.dtype, (one, dtype))
        converted.meta = {**node.meta, "val": one.meta["val"].to(dtype)}
        node.replace_input_with(one, converted)


def _dtype(node: torch.fx.Node) -> torch.dtype | None:
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) and value.dtype in _MIXED else None


def _of_result(node: torch.fx.Node) -> torch.dtype | None:
    """The one floating-point dtype of what an operator gives; None for none or several."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    found = {one.dtype for one in values if isinstance(one, torch.Tensor) and one.dtype.is_floating_point}
    (dtype,) = found if len(found) == 1 else (None,)
    return dtype if dtype in _MIXED else None


def _promoted(inputs: list[torch.fx.Node]) -> torch.dtype:
    """The dtype that torch's own rule gives: of the tensors that have axes, or of scalars where none has."""
    values = [one.meta["val"] for one in inputs]
    deciding = [one for one in values if one.dim()] or values
    dtypes: list[torch.dtype] = [one.dtype for one in deciding]
    return functools.reduce(torch.promote_types, dtypes)
