"""Makes `torch.onnx.is_in_onnx_export()` true while a model is captured. The one place that reaches into torch.onnx.

Two things are changed and restored: the flag that the function reads (seen through every import of the function), and
the constant that dynamo puts in place of a call of it while tracing in strict mode.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch.onnx
from torch.onnx._internal.exporter import _flags as peer_flags


@contextlib.contextmanager
def in_onnx_export() -> Iterator[None]:
    """Context in which models see that they are being exported to ONNX."""
    from torch._dynamo.variables import torch as dynamo_torch  # lazy: torch.export loads dynamo at its first use too

    constants: dict[Any, Any] = dynamo_torch.tracing_state_functions()
    function = torch.onnx.is_in_onnx_export
    flag, constant = peer_flags._is_onnx_exporting, constants.get(function, False)
    peer_flags._is_onnx_exporting = True
    constants[function] = True
    try:
        yield
    finally:
        peer_flags._is_onnx_exporting = flag
        constants[function] = constant
