"""The nodes that a rule writes in the place of another.

Arrives: calls of ONNX's operators as methods. Leaves: nodes in order, their results with a dtype where the operator's
name and inputs determine it. Numbers become Constant nodes; whoever runs the rules makes initializers of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

_BOOLEAN = frozenset(
    {"And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or"}
)
_COUNTS = frozenset({"ArgMax", "ArgMin", "NonZero", "Shape", "Size"})
_FROM_ATTRIBUTE = {"BitCast": "to", "Cast": "to"}


class Writer:
    """ONNX's operators as methods: `op.Add(a, b)`; what is written goes onto `nodes`.

    Attributes:
        nodes: what was written, in order.
    """

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        def append(*inputs: ir.Value | None, **attributes: Any) -> ir.Value:
            return self.several(op_type, inputs, 1, **attributes)[0]

        return append

    def several(
        self, op_type: str, inputs: Sequence[ir.Value | None], count: int, **attributes: Any
    ) -> Sequence[ir.Value]:
        """The results of an operator that has `count` of them; attributes that are None are left out."""
        given = {name: value for name, value in attributes.items() if value is not None}
        node = ir.Node("", op_type, inputs, ir.convenience.convert_attributes(given), num_outputs=count)
        self.take([node])
        return node.outputs

    def take(self, nodes: Sequence[ir.Node]) -> None:
        """Adds nodes that exist already, and belong to no graph, in order."""
        _say_dtypes(nodes)
        self.nodes += nodes

    def number(self, value: Any, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """A constant, a number or an array."""
        return self.Constant(value=ir.tensor(np.asarray(value).astype(dtype.numpy()), dtype=dtype))

    def like(self, value: Any, other: ir.Value) -> ir.Value:
        """A constant of the dtype of another value (float32 where that is unknown)."""
        return self.number(value, other.dtype or ir.DataType.FLOAT)


def _say_dtypes(nodes: Iterable[ir.Node]) -> None:
    """Writes dtypes onto the results of nodes in order, those of their bodies too."""
    for node in nodes:
        dtypes = _through_bodies(node) or [_dtype(node)] * len(node.outputs)
        for result, dtype in zip(node.outputs, dtypes, strict=False):
            if dtype is not None and result.type is None:
                result.type = ir.TensorType(dtype)


def _through_bodies(node: ir.Node) -> list[ir.DataType | None]:
    """The dtypes of the results of a node with bodies, which learn their own on the way; none for any other node."""
    bodies = [one.as_graph() for one in node.attributes.values() if one.type == ir.AttributeType.GRAPH]
    dtypes: list[ir.DataType | None] = []
    for body in bodies:
        before = [None if value is None else value.dtype for value in node.inputs]
        if node.op_type == "Loop":
            before[:2] = [ir.DataType.INT64, ir.DataType.BOOL]
        for formal, dtype in zip(body.inputs, before, strict=False):
            if dtype is not None and formal.type is None:
                formal.type = ir.TensorType(dtype)
        _say_dtypes(body)
        dtypes = [value.dtype for value in body.outputs][int(node.op_type == "Loop") :]
    return dtypes


def _dtype(node: ir.Node) -> ir.DataType | None:
    """The dtype of an operator's results."""
    if node.op_type in _BOOLEAN:
        return ir.DataType.BOOL
    if node.op_type in _COUNTS:
        return ir.DataType.INT64
    if node.op_type in _FROM_ATTRIBUTE:
        return ir.DataType(node.attributes[_FROM_ATTRIBUTE[node.op_type]].as_int())
    if node.op_type == "Constant" and "value" not in node.attributes:
        return ir.DataType.INT64 if any(name.startswith("value_int") for name in node.attributes) else ir.DataType.FLOAT
    if node.op_type in ("Constant", "ConstantOfShape"):
        value = node.attributes.get("value")
        return ir.DataType.FLOAT if value is None else value.as_tensor().dtype
    decisive = node.inputs[1:] if node.op_type in ("CastLike", "Where") else node.inputs
    first = decisive[0] if decisive else None
    return None if first is None else first.dtype
