"""Constant propagation: nodes whose inputs are all small constants are computed once, here, and become constants.

Arrives: an `onnx_ir.Model`. Leaves: the same model with fewer nodes. Constants are those that the exporter made;
weights are never read, since others may be applied later. torch computes what it has an operator for, so that
frequencies (`exp`, `pow`) are eager's to the last bit, which sines of large angles multiply; onnx's reference
implementation computes the rest, and what neither can stays.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from batch_export.exporter.graph import weights
from batch_export.exporter.optimise import weight_values
from batch_export.exporter.optimise.edits import RANDOM

_FEW_ELEMENTS = 1024
_LEFT_ALONE = frozenset(
    (
        *RANDOM,
        *("QuantizeLinear", "DequantizeLinear"),
        *("Resize", "EyeLike", "Optional", "SequenceEmpty", "Shape"),
    )
)
"""Random operators; quantisation, which runtimes look for; those that are slow here, or have no plain tensors."""


def fold(model: ir.Model) -> int:
    """Folds constants of the main graph in place; returns how many nodes went."""
    return sum(_fold_node(model, node) for node in list(model.graph))


def _fold_node(model: ir.Model, node: ir.Node) -> int:
    tensors = [_constant(model, value) for value in node.inputs]
    if node.domain or node.op_type in _LEFT_ALONE or len(node.outputs) != 1 or not tensors:
        return 0
    if any(tensor is None for tensor in tensors) or any(
        attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in node.attributes.values()
    ):
        return 0
    (output,) = node.outputs
    if output.is_graph_output():
        return 0
    content = _computed(node, [tensor for tensor in tensors if tensor is not None], model.opset_imports.get("", 18))
    if content is None:
        return 0
    kept = ir.Value(
        name=output.name, type=ir.TensorType(content.dtype), shape=ir.Shape(content.shape.numpy()), const_value=content
    )
    ir.convenience.replace_all_uses_with(output, kept)
    model.graph.remove(node, safe=True)
    model.graph.initializers[str(kept.name)] = kept
    return 1


def _constant(model: ir.Model, value: ir.Value | None) -> ir.TensorProtocol | None:
    """The content of a small constant that the exporter made."""
    if value is None or value.const_value is None or weights.is_torch_tensor(value):
        return None
    if model.graph.initializers.get(value.name or "") is not value or value.const_value.size > _FEW_ELEMENTS:
        return None
    return None if value.dtype in (None, ir.DataType.STRING, ir.DataType.BFLOAT16) else value.const_value


def _computed(node: ir.Node, tensors: list[ir.TensorProtocol], opset: int) -> ir.Tensor[Any] | None:
    inputs = [weight_values.as_tensor(tensor) for tensor in tensors]
    dtype = node.outputs[0].dtype
    if dtype in (None, ir.DataType.BFLOAT16) or any(tensor is None for tensor in inputs):
        return None
    outputs = weight_values.compute(node, inputs, opset)
    if outputs is None or outputs[0].numel() > _FEW_ELEMENTS:
        return None
    array = outputs[0].contiguous().numpy()
    return ir.Tensor(array, name=node.outputs[0].name) if array.dtype == dtype.numpy() else None
