"""What is there twice becomes one: weights over the same memory, equal constants, nodes that compute the same.

Arrives: a model. Leaves: the same one, changed in place, and how much was merged; each output stays a value of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import onnx_ir as ir
import onnx_ir.passes.common as common_passes
from torch._subclasses.fake_tensor import FakeTensor

from batch_export.exporter.graph import weights
from batch_export.exporter.optimise.edits import RANDOM
from batch_export.legalise.nested import graphs_of

_MERGED_ELEMENTS = 1024
"""Larger constants are not compared."""


def share_weights(model: ir.Model) -> int:
    """Initializers over the same memory become one: tied weights are stored once."""
    return _merge(model, _place)


def _place(value: ir.Value) -> Hashable | None:
    """Where and how a weight lies in memory."""
    raw = getattr(value.const_value, "raw", None)
    if raw is None or not hasattr(raw, "data_ptr") or not hasattr(raw, "stride"):
        return None
    address = 0 if isinstance(raw, FakeTensor) else raw.data_ptr()  # a tensor without memory shares nothing
    return (address, tuple(raw.shape), tuple(raw.stride()), str(raw.dtype)) if address else None


def merge_constants(model: ir.Model) -> int:
    """Constants with equal content become one."""
    return _merge(model, _content)


def _content(value: ir.Value) -> Hashable | None:
    """What a small constant holds."""
    tensor = value.const_value
    if tensor is None or weights.is_torch_tensor(value) or tensor.size > _MERGED_ELEMENTS:
        return None
    return None if tensor.dtype == ir.DataType.STRING else (tensor.dtype, tensor.shape.numpy(), tensor.tobytes())


def _merge(model: ir.Model, key_of: Callable[[ir.Value], Hashable | None]) -> int:
    """Initializers with one key become the first of them; those with None, and outputs, are left alone."""
    seen: dict[Hashable, ir.Value] = {}
    merged = 0
    outputs = set(model.graph.outputs)
    for name, value in list(model.graph.initializers.items()):
        key = None if value in outputs else key_of(value)
        if key is None:
            continue
        first = seen.setdefault(key, value)
        if first is not value:
            ir.convenience.replace_all_uses_with(value, first)
            del model.graph.initializers[name]
            merged += 1
    return merged


def merge_subexpressions(model: ir.Model) -> int:
    """Nodes with the same operator, inputs and attributes become one, but for those that draw random numbers."""
    drawing = _drawing(model)
    for place, node in enumerate(drawing):  # onnx_ir's pass knows some of the operators, and no functions
        node.attributes[_APART] = ir.AttrInt64(_APART, place)
    try:
        return int(common_passes.CommonSubexpressionEliminationPass()(model).modified)
    finally:
        for node in drawing:
            del node.attributes[_APART]


_APART = "stands_apart"


def _drawing(model: ir.Model) -> list[ir.Node]:
    """The nodes that draw random numbers, by themselves or in what they call."""
    calls = {name: list(_nodes(function.graph)) for name, function in model.functions.items()}
    drawing: set[ir.OperatorIdentifier] = set()

    def draws(node: ir.Node) -> bool:
        return (node.domain == "" and node.op_type in RANDOM) or node.op_identifier() in drawing

    count = -1
    while count < len(drawing):
        count = len(drawing)
        drawing |= {name for name, nodes in calls.items() if any(map(draws, nodes))}
    every = [*_nodes(model.graph), *(node for nodes in calls.values() for node in nodes)]
    return [node for node in every if draws(node)]


def _nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    return (node for one in graphs_of(graph) for node in one)


def merge_equal_nodes(model: ir.Model) -> None:
    """Makes nodes that compute the same one node; outputs stay values of their own."""
    merge_subexpressions(model)
    separate_outputs(model)


def separate_outputs(model: ir.Model) -> int:
    """Gives each output of a graph or body a value of its own again: onnxruntime computes wrong numbers otherwise.

    Removing an Identity, a rewrite, or merging equal nodes can leave one value listed as two outputs (a state of a Scan
    that is also its slice), or as the output of a body that it is not made in. NOTE: measured with onnxruntime 1.31.
    """
    copies = 0
    for graph in graphs_of(model.graph):
        seen: set[ir.Value] = set()
        for index, value in enumerate(graph.outputs):
            if value in seen or (graph is not model.graph and _is_from_outside(value, graph)):
                copies += 1
                copy = ir.Value(name=f"{value.name}_again_{copies}", type=value.type, shape=value.shape)
                graph.append(ir.Node("", "Identity", [value], outputs=[copy], name=f"{value.name}_copy_{copies}"))
                graph.outputs[index] = value = copy
            seen.add(value)
    return copies


def _is_from_outside(value: ir.Value, body: ir.Graph) -> bool:
    """Whether a body's output is neither made in it nor an input of it."""
    producer = value.producer()
    return (producer is None or producer.graph is not body) and value not in body.inputs
