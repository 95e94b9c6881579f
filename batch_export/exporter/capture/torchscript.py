"""Scripted and traced modules -> eager modules that torch.export can capture.

Arrives: a `ScriptModule` or `ScriptFunction` with example inputs. Leaves: a module with the same parameters, whose
sizes are free wherever the TorchScript graph leaves them free. Nothing of ONNX is known here; TorchScript's own ONNX
exporter is a peer and lives outside the core.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from batch_export.errors import CaptureError


def is_scripted(model: Any) -> bool:
    """Whether the model is a `ScriptModule` or a `ScriptFunction`."""
    return isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptFunction))


def as_eager(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module:
    """Converts a scripted model through torch's own converter.

    Raises:
        CaptureError: if the graph has an operator that the converter does not know.
    """
    from torch._export.converter import TS2EPConverter  # lazy: only scripted models need it

    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = TS2EPConverter(model, args, kwargs or None).convert()
            return program.module(check_guards=False)
    except Exception as error:
        raise CaptureError(
            f"the TorchScript model could not be converted: {type(error).__name__}: {error}",
            next_step="export the original module instead, or pass dynamo=False for the TorchScript exporter",
        ) from error
