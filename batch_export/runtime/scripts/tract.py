"""One file in tract."""

from __future__ import annotations

from typing import Any

import tract


def version() -> str:
    """Returns the runtime's version."""
    return str(tract.version())


def outputs(path: str, settings: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    """Runs the file and returns its outputs in order."""
    del settings  # it has none
    model = tract.onnx().load(path)
    names = [model.input_name(index) for index in range(model.input_count())]
    runnable = model.into_model().into_runnable()
    return [value.to_numpy() for value in runnable.run([tract.Tensor.from_numpy(inputs[name]) for name in names])]
