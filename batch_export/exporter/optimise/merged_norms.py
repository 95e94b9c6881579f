"""Merges a batch normalisation, which is a factor and a summand per channel, into the weights of what it follows.

Arrives: a model whose weights have content (the copy that is written to a file). Leaves: the same model, changed in
place: a Conv, ConvTranspose or Gemm followed by a BatchNormalization becomes that operator alone. The new weights are
computed in float64; where they would not hold what the old ones held (infinite, or too small for their dtype), the
normalisation stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from batch_export.exporter.graph import metadata
from batch_export.exporter.optimise import weight_values
from batch_export.legalise.nested import graphs_of

_BEFORE = ("Conv", "ConvTranspose", "Gemm")


@dataclass(frozen=True, slots=True)
class Affine:
    """`y = factor * x + summand`, both `float64[channels]`."""

    factor: Tensor
    summand: Tensor


def merge(model: ir.Model) -> int:
    """Merges in place; returns how many nodes went."""
    return sum(
        _merge(model, node)
        for graph in graphs_of(model.graph)
        for node in [one for one in graph if one.op_type == "BatchNormalization"]
    )


def _merge(model: ir.Model, node: ir.Node) -> int:
    if node.op_type != "BatchNormalization" or node.domain or integer(node, "training_mode", 0):
        return 0
    if len([value for value in node.outputs if value.uses() or value.is_graph_output()]) > 1:
        return 0
    before = node.inputs[0].producer() if node.inputs[0] is not None else None
    if before is None or before.op_type not in _BEFORE or before.domain or before.graph is not node.graph:
        return 0
    (between,) = before.outputs
    if len(between.uses()) != 1 or between.is_graph_output() or not is_own_weight(before.inputs[1]):
        return 0
    affine = of_norm(node)
    made = None if affine is None else new_weights(before, affine)
    if made is None:
        return 0
    output, kept = node.outputs[0], before.inputs[:]
    for place, tensor in zip((1, 2), made, strict=True):
        given = kept[place] if place < len(kept) else None
        name = given.name if given is not None and len(given.uses()) == 1 else f"{output.name}_bias"
        value = initializer(model, tensor, f"{name}_merged")
        if place < len(before.inputs):
            before.replace_input_with(place, value)
        else:
            before.resize_inputs(place + 1)
            before.replace_input_with(place, value)
    before.attributes.pop("beta", None)
    take_over(node, before)
    return 1


def take_over(node: ir.Node, before: ir.Node) -> None:
    """Removes a node, whose output is from now on what the node before it makes, under its name."""
    output, between = node.outputs[0], before.outputs[0]
    for key, text in node.metadata_props.items():
        before.metadata_props.setdefault(key, text)
    if metadata.FX_NODE in node.metadata_props:  # the value that it makes now is the other's
        before.metadata_props[metadata.FX_NODE] = node.metadata_props[metadata.FX_NODE]
    name, shape, kind, properties = output.name, output.shape, output.type, dict(output.metadata_props)
    ir.convenience.replace_all_uses_with(output, between, replace_graph_outputs=True)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    output.name = None
    between.name, between.shape, between.type = (
        name,
        shape if shape is not None else between.shape,
        kind or between.type,
    )
    between.metadata_props.update(properties)


def integer(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def is_own_weight(value: ir.Value | None) -> bool:
    """Whether a weight is there for one node alone, so that it can be another."""
    return value is not None and value.is_initializer() and len(value.uses()) == 1 and not value.is_graph_output()


def content_of(value: ir.Value | None) -> Tensor | None:
    if value is None or not value.is_initializer() or value.is_graph_input():
        return None
    tensor = weight_values.as_tensor(value.const_value)
    if tensor is None or isinstance(tensor, FakeTensor) or not tensor.is_floating_point():
        return None
    return tensor


def of_norm(node: ir.Node) -> Affine | None:
    parts = [content_of(value) for value in node.inputs[1:5]]
    if len(parts) != 4 or any(part is None for part in parts):
        return None
    scale, shift, mean, variance = (part.double() for part in parts if part is not None)
    factor = scale / torch.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
    return Affine(factor, shift - mean * factor)


def new_weights(node: ir.Node, affine: Affine) -> tuple[Tensor, Tensor] | None:
    """The weight and the bias of the operator that does both; None where they are not to be had."""
    weight = content_of(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    bias = content_of(given)
    if weight is None or (given is not None and bias is None):
        return None
    channels = affine.factor.numel()
    if node.op_type == "Gemm":
        axis = 0 if integer(node, "transB", 0) else 1
        held = None if bias is None else bias.double() * node.attributes.get_float("beta", 1.0)
        if held is not None and (held.numel() not in (1, channels) or held.shape[:-1].numel() != 1):
            return None  # one number for each row, or for each element
        exact = along(weight.double(), axis, affine.factor)
    elif node.op_type == "Conv":
        held = None if bias is None else bias.double()
        exact = along(weight.double(), 0, affine.factor)
    else:
        groups = integer(node, "group", 1)
        held = None if bias is None else bias.double()
        grouped = weight.double().reshape(groups, -1, *weight.shape[1:])
        factor = affine.factor.reshape(groups, 1, -1, *[1] * (weight.dim() - 2))
        exact = (grouped * factor).reshape(weight.shape)
    summand = affine.summand if held is None else held.flatten() * affine.factor + affine.summand
    made = (exact.to(weight.dtype), summand.expand(channels).to(weight.dtype))
    return made if holds(made[0], exact) and holds(made[1], summand.expand(channels)) else None


def along(weight: Tensor, axis: int, factor: Tensor) -> Tensor:
    return weight * factor.reshape([-1 if place == axis else 1 for place in range(weight.dim())])


def holds(rounded: Tensor, exact: Tensor) -> bool:
    """Whether rounding lost nothing but digits that the dtype lacks."""
    if not bool(torch.isfinite(rounded).all()):
        return False
    largest = exact.abs().max() if exact.numel() else exact.new_zeros(())
    error = (rounded.double() - exact).abs()
    return bool((error <= torch.finfo(rounded.dtype).eps * torch.maximum(exact.abs(), largest * 1e-3)).all())


def initializer(model: ir.Model, tensor: Tensor, name: str) -> ir.Value:
    initializers = model.graph.initializers
    free = next(one for one in _names(name) if one not in initializers)
    content = tensor_adapters.TorchTensor(tensor, name=free)
    value = ir.Value(
        name=free, type=ir.TensorType(content.dtype), shape=ir.Shape(tuple(tensor.shape)), const_value=content
    )
    initializers[free] = value
    return value


def _names(name: str) -> Iterator[str]:
    yield name
    number = 1
    while True:
        yield f"{name}_{number}"
        number += 1
