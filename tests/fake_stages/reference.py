"""A reference of one output."""

from __future__ import annotations

from batch_export import axes
from batch_export.stages.output import StageOutput
from fake_stages.acting import act
from fake_stages.bench import Workbench


def execute(bench: Workbench) -> StageOutput:
    act(bench.model.arguments, "Reference")
    data = bench.model.arguments.get("data")
    if data:
        with open(data, encoding="utf-8") as stream:
            stream.read()
    path = bench.scratch / "reference"
    if bench.model.arguments.get("places"):
        with open(bench.model.arguments["places"], "a", encoding="utf-8") as stream:
            stream.write(f"{path}\n")
    path.write_text(f"reference of {bench.model.name}")
    cases = [
        {"sizes": sizes, "example": index == 0, "rejected": "", "noise": [0.0]}
        for index, sizes in enumerate(axes.all_cases(bench.model))
    ]
    outputs = [{"name": "0", "dtype": "float32"}]
    if bench.model.arguments.get("do", {}).get("Reference") == "not_plain":
        return StageOutput({"cases": object()})
    return StageOutput({"cases": cases, "outputs": outputs, "mutations": [], "parameters": 7}, {"reference": path})
