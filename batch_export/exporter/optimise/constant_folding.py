"""Constant propagation: nodes whose inputs are all small constants are computed once, here, and become constants.

Arrives: an `onnx_ir.Model`. Leaves: the same model with fewer nodes. Constants are those that the exporter made;
weights are never read, since others may be applied later. onnx's reference implementation computes, and what it cannot
compute stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from batch_export.exporter.graph import weights
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
    names = [f"input_{index}" for index in range(len(tensors))]
    attributes = [ir.to_proto(attribute) for attribute in node.attributes.values()]
    made = onnx.helper.make_node(node.op_type, names, ["output"])
    made.attribute.extend(attributes)
    inputs = [
        onnx.helper.make_tensor_value_info(name, int(of.dtype), None) for name, of in zip(names, tensors, strict=True)
    ]
    graph = onnx.helper.make_graph([made], "folded", inputs, [onnx.helper.make_empty_tensor_value_info("output")])
    single = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    feeds = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
    try:
        array: Any
        with np.errstate(all="ignore", invalid="raise"):  # casts of infinity to int differ between runtimes
            (array,) = ReferenceEvaluator(single).run(None, feeds)
    except Exception:  # whatever the reference cannot compute stays a node
        return None
    dtype = node.outputs[0].dtype
    if not hasattr(array, "dtype") or array.size > _FEW_ELEMENTS or dtype is None or array.dtype != dtype.numpy():
        return None
    return ir.Tensor(array, name=node.outputs[0].name)
