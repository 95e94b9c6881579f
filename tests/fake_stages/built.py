"""A reference that is what the model's builder returns, a text: the builder is called as the real stage calls it."""

from __future__ import annotations

import importlib

from batch_export.sources.places import resolve_target
from batch_export.stages.output import StageOutput
from fake_stages.bench import Workbench


def execute(bench: Workbench) -> StageOutput:
    module, name = resolve_target(bench.model.target)
    text = getattr(importlib.import_module(module), name)(**bench.model.arguments)
    path = bench.scratch / "reference"
    path.write_text(f"{bench.model.name}: {text}")
    cases = [{"sizes": {"batch": 2}, "example": True, "rejected": "", "noise": [0.0]}]
    outputs = [{"name": "0", "dtype": "float32"}]
    return StageOutput({"cases": cases, "outputs": outputs, "mutations": [], "parameters": 7}, {"reference": path})
