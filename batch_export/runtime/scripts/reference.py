"""One file in onnx's reference evaluator."""

from __future__ import annotations

from typing import Any

import onnx
from onnx.reference import ReferenceEvaluator


def version() -> str:
    """Returns the runtime's version."""
    return str(onnx.__version__)


def outputs(path: str, settings: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    """Runs the file and returns its outputs in order."""
    del settings  # it has none
    return list(ReferenceEvaluator(path).run(None, inputs))
