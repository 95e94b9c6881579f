"""The nodes that a rule writes in the place of another.

Arrives: calls of ONNX's operators as methods. Leaves: nodes in order, their results with a dtype where the operator's
name and inputs tell it. Numbers become Constant nodes; whoever runs the rules makes initializers of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import tape

_BOOLEAN = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or"})
_COUNTS = frozenset({"ArgMax", "ArgMin", "NonZero", "Shape", "Size"})
_FROM_ATTRIBUTE = {"BitCast": "to", "Cast": "to"}


class Writer:
    """ONNX's operators as methods: `op.Add(a, b)`; what is written goes onto `nodes`.

    Attributes:
        nodes: what was written, in order.
    """

    def __init__(self) -> None:
        self._tape = tape.Tape()

    @property
    def nodes(self) -> list[ir.Node]:
        return list(self._tape.nodes)

    def __getattr__(self, op_type: str) -> Callable[..., ir.Value]:
        def append(*inputs: ir.Value | None, **attributes: Any) -> ir.Value:
            return self.several(op_type, inputs, 1, **attributes)[0]

        return append

    def several(
        self, op_type: str, inputs: Sequence[ir.Value | None], count: int, **attributes: Any
    ) -> Sequence[ir.Value]:
        """The results of an operator that has `count` of them; attributes that are None are left out."""
        given = {name: value for name, value in attributes.items() if value is not None}
        results: Sequence[ir.Value] = self._tape.op_multi_out(op_type, inputs, given, num_outputs=count)
        dtype = _dtype(op_type, inputs, given)
        for result in results:
            if dtype is not None:
                result.type = ir.TensorType(dtype)
        return results

    def number(self, value: Any, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """A constant, a number or an array."""
        return self.Constant(value=ir.tensor(np.asarray(value).astype(dtype.numpy()), dtype=dtype))

    def like(self, value: Any, other: ir.Value) -> ir.Value:
        """A constant of the dtype of another value (float32 where that is unknown)."""
        return self.number(value, other.dtype or ir.DataType.FLOAT)


def _tensor(value: Any) -> ir.TensorProtocol | None:
    content: ir.TensorProtocol | None = value.value if isinstance(value, ir.Attr) else value
    return content


def _dtype(op_type: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]) -> ir.DataType | None:
    """The dtype of an operator's results."""
    if op_type in _BOOLEAN:
        return ir.DataType.BOOL
    if op_type in _COUNTS:
        return ir.DataType.INT64
    if op_type in _FROM_ATTRIBUTE:
        given = attributes[_FROM_ATTRIBUTE[op_type]]
        return ir.DataType(given.value if isinstance(given, ir.Attr) else given)
    if op_type == "Constant" and "value" not in attributes:
        return ir.DataType.INT64 if any(name.startswith("value_int") for name in attributes) else ir.DataType.FLOAT
    if op_type in ("Constant", "ConstantOfShape"):
        tensor = _tensor(attributes.get("value"))
        return ir.DataType.FLOAT if tensor is None else tensor.dtype
    decisive = inputs[1:] if op_type == "Where" else inputs
    first = decisive[0] if decisive else None
    return None if first is None else first.dtype
