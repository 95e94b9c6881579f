"""Tensor values as the runtime room handles them: numpy arrays, and raw bits for dtypes that numpy does not have.

An array of a numpy dtype arrives and leaves as it is. bfloat16, the float8 family and the integers of four bits travel
as `RawTensor`: the dtype's name and the unsigned integers that hold the bits. `widened` turns either into numbers to
compute with; nothing here ever rounds on the way. A sequence of tensors is a `TensorSequence`, an optional value that
is not there None.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_RAW_DTYPES = {
    "bfloat16": np.uint16,
    "float8_e4m3fn": np.uint8,
    "float8_e4m3fnuz": np.uint8,
    "float8_e5m2": np.uint8,
    "float8_e5m2fnuz": np.uint8,
    "int4": np.uint8,
    "uint4": np.uint8,
}
_SMALLEST_NORMAL = {
    "bfloat16": 2.0**-126,
    "float8_e4m3fn": 2.0**-6,
    "float8_e4m3fnuz": 2.0**-7,
    "float8_e5m2": 2.0**-14,
    "float8_e5m2fnuz": 2.0**-15,
}
_NUMPY_KINDS = "biufc"


@dataclass(frozen=True, slots=True, eq=False)
class RawTensor:
    """A tensor of a dtype that numpy lacks.

    Attributes:
        dtype: `bfloat16`, `float8_e4m3fn`, `float8_e4m3fnuz`, `float8_e5m2`, `float8_e5m2fnuz`, `int4` or `uint4`.
        bits: the elements' bits, uint16 for bfloat16 and uint8 for the others (integers of four bits have theirs in the
            lower half), in the tensor's shape.
    """

    dtype: str
    bits: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the tensor."""
        return self.bits.shape


Value = Array | RawTensor


@dataclass(frozen=True, slots=True, eq=False)
class TensorSequence:
    """A sequence of ONNX: tensors of one dtype, each of its own shape.

    Attributes:
        items: the tensors in order; there may be none.
    """

    items: tuple[Value, ...]


Fed = Value | TensorSequence | None
"""What an input or output of a file may be; None is an optional value that is not there."""


def raw_dtype(name: str) -> np.dtype[Any] | None:
    """Returns the unsigned integer dtype that holds the bits of the dtype `name`, or None if numpy has that dtype."""
    return np.dtype(_RAW_DTYPES[name]) if name in _RAW_DTYPES else None


def dtype_name(value: Value) -> str:
    """Returns the name that records use: `float32`, `bfloat16`, `bool`, `str` for text of any length, ..."""
    if isinstance(value, RawTensor):
        return value.dtype
    return value.dtype.name if value.dtype.kind in _NUMPY_KINDS else "str"


def smallest_normal(name: str) -> float:
    """Returns the smallest positive normal number of a floating-point dtype; 1.0 for every other dtype."""
    if name in _SMALLEST_NORMAL:
        return _SMALLEST_NORMAL[name]
    dtype: np.dtype[Any] = np.dtype(object if name == "str" else name)
    limits: Any = np.finfo
    return float(limits(dtype).smallest_normal) if dtype.kind in "fc" else 1.0


def widened(value: Value) -> Array:
    """Returns the numbers: float32 for raw dtypes (exact, for each is a subset of it), else the array itself."""
    if not isinstance(value, RawTensor):
        return value
    if value.dtype == "bfloat16":
        return (value.bits.astype(np.uint32) << 16).view(np.float32)
    if value.dtype in ("int4", "uint4"):
        numbers = (value.bits & 0xF).astype(np.float32)
        return np.where(numbers > 7, numbers - 16, numbers).astype(np.float32) if value.dtype == "int4" else numbers
    table: Array = _float8_table(value.dtype)[value.bits]
    return table


@cache
def _float8_table(name: str) -> NDArray[np.float32]:
    """Returns the 256 values of a float8 format (https://onnx.ai/onnx/technical/float8.html)."""
    exponent_bits, mantissa_bits = (4, 3) if "e4m3" in name else (5, 2)
    unsigned_zero = name.endswith("fnuz")
    bias = 2 ** (exponent_bits - 1) - (0 if unsigned_zero else 1)
    table = np.zeros(256, dtype=np.float32)
    for bits in range(256):
        sign = -1.0 if bits >> 7 else 1.0
        exponent = (bits >> mantissa_bits) & (2**exponent_bits - 1)
        mantissa = bits & (2**mantissa_bits - 1)
        if exponent == 0:
            number = mantissa * 2.0 ** (1 - bias - mantissa_bits)
        else:
            number = (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)
        if unsigned_zero:
            number = float("nan") if bits == 0x80 else number
        elif name == "float8_e4m3fn":
            number = float("nan") if bits & 0x7F == 0x7F else number
        elif exponent == 31:
            number = float("nan") if mantissa else float("inf")
        table[bits] = sign * number
    return table
