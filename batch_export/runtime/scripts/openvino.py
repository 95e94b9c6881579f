"""One file in OpenVINO."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino


def version() -> str:
    """Returns the runtime's version."""
    return str(openvino.__version__)


def outputs(path: str, settings: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    """Runs the file and returns its outputs in order."""
    core = openvino.Core()
    device = settings["execution_provider"] or "CPU"
    core.set_property(device, settings["options"])
    compiled = core.compile_model(core.read_model(path), device)
    results = compiled([inputs[value.get_any_name()] for value in compiled.inputs])
    return [np.array(results[value]) for value in compiled.outputs]
