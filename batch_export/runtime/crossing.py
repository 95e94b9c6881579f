"""Values as `served/serve.py` has them, and back: what crosses from a session to the module that serves its runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from batch_export.numbers.values import Fed, RawTensor, TensorSequence, Value, dtype_name, raw_dtype
from batch_export.runtime.served import serve


def sent(value: Fed) -> serve.Tensor:
    """Returns a value as a pair of its dtype's name and an array, or of `sequence` or `nothing` and what that holds."""
    if value is None:
        return serve.NOTHING, None
    if isinstance(value, TensorSequence):
        return serve.SEQUENCE, [sent(item) for item in value.items]
    return dtype_name(value), value.bits if isinstance(value, RawTensor) else np.asarray(value)


def received(kind: str, content: Any) -> Fed:
    """Returns the value of such a pair."""
    if kind == serve.NOTHING:
        return None
    if kind == serve.SEQUENCE:
        return TensorSequence(tuple(_tensor(*item) for item in content))
    return _tensor(kind, content)


def _tensor(dtype: str, array: Any) -> Value:
    value: Value = array if raw_dtype(dtype) is None else RawTensor(dtype, array)
    return value
