"""A reference that is what the model's builder returns, a text: the builder is called as the real stage calls it."""

from __future__ import annotations

from typing import Any

from batch_export.sources.places import resolve_target
from batch_export.stages import for_config, nested_arguments
from batch_export.stages.output import StageOutput
from fake_stages.bench import Workbench


def _found(target: str) -> Any:
    """What a dotted name stands for; what gives None where its module is not there."""
    module, name = resolve_target(target)
    try:
        return getattr(for_config.imported(module), name)
    except ModuleNotFoundError:
        return lambda: None


def execute(bench: Workbench) -> StageOutput:
    arguments = nested_arguments.made(bench.model.name, bench.model.arguments, _found)
    text = for_config.called(_found(bench.model.target), **arguments)
    path = bench.scratch / "reference"
    path.write_text(f"{bench.model.name}: {text}")
    cases = [{"sizes": {"batch": 2}, "example": True, "rejected": "", "noise": [0.0]}]
    outputs = [{"name": "0", "dtype": "float32"}]
    return StageOutput({"cases": cases, "outputs": outputs, "mutations": [], "parameters": 7}, {"reference": path})
