"""An ONNX model as text for people: one line for each input, weight, node and output. Never a weight's content."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

_FEW_ELEMENTS = 8
_LONG_ATTRIBUTE = 80


def lines(model: ir.Model) -> Iterator[str]:
    """The model, line by line."""
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in model.opset_imports.items())
    count = sum(1 for _ in model.graph.all_nodes())
    within = f" and {len(model.functions)} functions" if model.functions else ""
    yield f"ONNX graph {model.graph.name!r}: {count} nodes{within}, opset {opsets}, IR version {model.ir_version}"
    yield "inputs:"
    yield from (f"  {_typed(value)}" for value in model.graph.inputs)
    weights = list(model.graph.initializers.values())
    size = sum(value.const_value.nbytes for value in weights if value.const_value is not None)
    yield f"weights and constants: {len(weights)}, {size:,} bytes"
    yield from (f"  {_typed(value)}{_content(value)}" for value in weights)
    yield "nodes:"
    yield from _nodes(model.graph, "  ")
    yield "outputs:"
    yield from (f"  {_typed(value)}" for value in model.graph.outputs)
    for function in model.functions.values():
        yield f"function {function.domain}::{function.name}({', '.join(map(_typed, function.inputs))}):"
        yield from _nodes(function, "  ")
        yield f"  -> {', '.join(value.name or '' for value in function.outputs)}"


def _typed(value: ir.Value) -> str:
    dtype = value.dtype.name if value.dtype is not None else "?"
    sizes = "?" if value.shape is None else ", ".join(str(getattr(size, "value", size)) for size in value.shape.dims)
    return f"{value.name}: {dtype}[{sizes}]"


def _content(value: ir.Value) -> str:
    """The numbers of a small constant; a weight of the model is never shown."""
    tensor = value.const_value
    if not isinstance(tensor, ir.Tensor) or math.prod(value.const_value.shape.numpy()) > _FEW_ELEMENTS:  # type: ignore[union-attr]
        return ""
    if hasattr(tensor.raw, "requires_grad"):
        return ""
    return f" = {tensor.numpy().tolist()}"


def _nodes(graph: Any, indent: str) -> Iterator[str]:
    for node in graph:
        inputs = ", ".join(value.name if value is not None else "-" for value in node.inputs)
        attributes = {name: _attribute(one) for name, one in node.attributes.items() if not _is_graph(one)}
        shown = f" {{{', '.join(f'{name}={text}' for name, text in attributes.items())}}}" if attributes else ""
        domain = f"{node.domain}::" if node.domain else ""
        yield f"{indent}{', '.join(_typed(value) for value in node.outputs)} = {domain}{node.op_type}({inputs}){shown}"
        for name, one in node.attributes.items():
            if _is_graph(one):
                yield f"{indent}  {name}({', '.join(_typed(value) for value in one.value.inputs)}):"
                yield from _nodes(one.value, indent + "    ")
                yield f"{indent}    -> {', '.join(value.name for value in one.value.outputs)}"


def _is_graph(attribute: Any) -> bool:
    return bool(attribute.type == ir.AttributeType.GRAPH)


def _attribute(attribute: Any) -> str:
    text = str(attribute.value)
    return text if len(text) <= _LONG_ATTRIBUTE else f"{text[:_LONG_ATTRIBUTE]}..."
