"""torch tensors <-> the runtime room's values (numpy arrays, and raw bits for dtypes that numpy lacks)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from batch_export.numbers.values import RawTensor, Value, raw_dtype


def to_value(tensor: torch.Tensor) -> Value:
    """The tensor's content on the CPU; bfloat16 and float8 as their bits."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    name = str(tensor.dtype).removeprefix("torch.")
    bits = raw_dtype(name)
    if bits is not None:
        return RawTensor(name, plain.view(getattr(torch, bits.name)).numpy())
    array: NDArray[np.generic] = plain.numpy()
    return array


def to_tensor(value: Value) -> torch.Tensor:
    """A tensor with a copy of the value's content."""
    if isinstance(value, RawTensor):
        bits = torch.from_numpy(np.array(value.bits))
        return bits.view(getattr(torch, value.dtype))
    array = np.array(value)  # onnxruntime gives uint64 as `ulonglong`, which torch does not know; its text is uint64's
    return torch.from_numpy(array.view(array.dtype.str))
