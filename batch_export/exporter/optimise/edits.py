"""What rewrites of a graph share: constants known and made, sizes compared, nodes put in the place of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.exporter.graph import weights

RANDOM = frozenset(
    (
        *("Bernoulli", "Multinomial", "Dropout"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
)
"""Operators that draw random numbers."""


def known(value: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The content of a constant that the exporter made."""
    if value is None or value.const_value is None or weights.is_torch_tensor(value) or value.is_graph_input():
        return None
    return None if value.dtype == ir.DataType.STRING else value.const_value.numpy()


def _same_size(one: Any, other: Any) -> bool:
    """Whether two sizes are one: the same number, or the same expression of free axes."""
    if isinstance(one, int) or isinstance(other, int):
        return isinstance(one, int) and isinstance(other, int) and one == other
    return one.value is not None and one.value == other.value


def same_sizes(one: Sequence[object] | ir.Shape | None, other: Sequence[object] | ir.Shape | None) -> bool:
    """Whether two shapes are known and one."""
    return one is not None and other is not None and len(one) == len(other) and all(map(_same_size, one, other))


def constant(model: ir.Model, array: np.ndarray[Any, Any], stem: str) -> ir.Value:
    """A new initializer with this content, under a free name.

    It has a point in it, which no name of a captured node has (`split_0`); those of weights are initializers too.
    """
    initializers, inputs, number = model.graph.initializers, {one.name for one in model.graph.inputs}, 0
    while f"{stem}.{number}" in initializers or f"{stem}.{number}" in inputs:
        number += 1
    content = ir.Tensor(array, name=f"{stem}.{number}")
    value = ir.Value(
        name=content.name, type=ir.TensorType(content.dtype), shape=ir.Shape(array.shape), const_value=content
    )
    initializers[f"{stem}.{number}"] = value
    return value


def insert(
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


def taken_out(node: ir.Node, instead: ir.Value) -> int:
    """Removes a node of one output, whose readers read a value that is there already; returns that as one change."""
    ir.convenience.replace_all_uses_with(node.outputs[0], instead)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return 1


def only_use(value: ir.Value | None, op_type: str) -> ir.Node | None:
    """The node that makes a value for one other node alone."""
    producer = None if value is None else value.producer()
    if producer is None or producer.domain or producer.op_type != op_type:
        return None
    assert value is not None
    return producer if len(value.uses()) == 1 and not value.is_graph_output() else None
