"""One file in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import onnxruntime

LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}


def version() -> str:
    """Returns the runtime's version."""
    return str(onnxruntime.__version__)


def outputs(path: str, settings: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    """Runs the file and returns its outputs in order."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    level = LEVELS[settings["graph_optimization"]]
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    providers = [(settings["execution_provider"], settings["options"])]
    return list(onnxruntime.InferenceSession(path, options, providers=providers).run(None, inputs))
