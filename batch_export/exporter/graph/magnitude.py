"""Whether integers are known to fit into 32 bits, from the nodes that compute them.

A value arrives, a bound on its elements leaves. Sizes and positions are taken to be at most 2^28: no axis is longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

_SIZE = 2.0**28
_LIMIT = 2.0**31 - 1
_DEPTH = 12
"""Nodes looked at one behind the other; what lies further back is not known."""
_SIZES = frozenset(("Shape", "Size", "NonZero", "ArgMax", "ArgMin"))
MOVES = frozenset(
    (
        *("Identity", "Reshape", "Transpose", "Expand", "Slice", "Gather", "GatherElements", "GatherND", "Squeeze"),
        *("Unsqueeze", "Flatten", "Tile", "Split"),
    )
)
"""Operators whose results are elements of the first input."""
_NO_LARGER = MOVES | {"Neg", "Abs", "Trilu", "ReduceMax", "ReduceMin"}
"""Those, and operators whose results are such elements up to their signs, or zeros."""
_CHOICES = frozenset(("Concat", "Max", "Min"))


def fits_in_32_bits(value: ir.Value) -> bool:
    """Whether every element is known to lie in (-2^31, 2^31)."""
    return _largest(value, _DEPTH) <= _LIMIT


def _largest(value: ir.Value | None, depth: int) -> float:
    """A bound on the absolute values of the elements; infinite where none is known."""
    if value is None or depth == 0:
        return math.inf
    if value.dtype in (ir.DataType.BOOL, ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT16):
        return 2.0**16
    if value.const_value is not None:
        numbers = value.const_value.numpy()
        return float(np.abs(numbers.astype(np.float64)).max()) if numbers.size else 0.0
    producer = value.producer()
    if producer is None or producer.domain:
        return math.inf
    name = producer.op_type
    given = [_largest(one, depth - 1) for one in producer.inputs] if name in _COMBINED else []
    if name in _SIZES or (name == "TopK" and value is producer.outputs[1]):
        return _SIZE
    if name in _NO_LARGER or name in ("Cast", "CastLike"):
        return _of_first(producer, depth)
    return _COMBINED[name](given) if given else math.inf


def _of_first(producer: ir.Node, depth: int) -> float:
    """That of the first input; a cast of other than integers may give any number."""
    first = producer.inputs[0]
    if first is None or first.dtype is None or first.dtype.is_floating_point():
        return math.inf
    return _largest(first, depth - 1)


_COMBINED: Mapping[str, Callable[[Sequence[float]], float]] = {
    **dict.fromkeys(_CHOICES, max),
    "Range": lambda given: max(given[:2]),
    "Where": lambda given: max(given[1:]),
    "Add": sum,
    "Sub": sum,
    "Mul": math.prod,
    "Div": lambda given: given[0],
    "Mod": lambda given: given[1],
}
"""Operator -> the bound of its result, from those of its inputs."""
