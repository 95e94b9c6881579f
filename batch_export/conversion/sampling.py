"""Inputs for a file of which nothing is known but its inputs' names, dtypes and shapes.

Arrives: the inputs of a graph. Leaves: arrays by name. Sizes that are free are the same wherever they have one name;
integers are 0 or 1, which most tables and axes have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from batch_export.numbers.values import RawTensor, Value, raw_dtype

_RAW = {
    ir.DataType.BFLOAT16: "bfloat16",
    ir.DataType.FLOAT8E4M3FN: "float8_e4m3fn",
    ir.DataType.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    ir.DataType.FLOAT8E5M2: "float8_e5m2",
    ir.DataType.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
}


def feeds(inputs: Sequence[ir.Value], size: int, seed: int) -> dict[str, Value]:
    """Draws inputs.

    Args:
        inputs: the graph's inputs without weights.
        size: of every free axis.
        seed: of the numbers.

    Raises:
        ValueError: an input is no tensor, or of a dtype without numbers, or its number of axes is not known.
    """
    random = np.random.default_rng(seed)
    return {str(value.name): _drawn(value, size, random) for value in inputs}


def has_free_axes(inputs: Sequence[ir.Value]) -> bool:
    """Whether any size of the inputs is free."""
    return any(not isinstance(size, int) for value in inputs for size in value.shape or ())


def _drawn(value: ir.Value, size: int, random: np.random.Generator) -> Value:
    if not isinstance(value.type, ir.TensorType) or value.shape is None:
        raise ValueError(f"the input {value.name} is not a tensor of a known number of axes")
    shape = [one if isinstance(one, int) else size for one in value.shape]
    dtype = value.type.dtype
    numbers: Any = random.standard_normal(shape)
    if dtype in _RAW:
        name = _RAW[dtype]
        bits = raw_dtype(name)
        assert bits is not None
        return RawTensor(name, numbers.astype(dtype.numpy()).view(bits))
    if dtype == ir.DataType.STRING:
        return np.full(shape, "text", dtype=object)
    plain = dtype.numpy()
    if not dtype.is_floating_point():
        numbers = random.integers(0, 2, shape)
    return np.asarray(numbers).astype(plain)
