"""A plug-in exporter that writes one file, and spoils its process where it is told to."""

from __future__ import annotations

from batch_export.stages.output import ModelFiles, StageOutput
from fake_stages.acting import act
from fake_stages.bench import Workbench


def execute(bench: Workbench, opset: int) -> StageOutput:
    act(bench.model.arguments, f"Translate@{opset}")
    bench.was_lent = True
    bench.is_spoiled = bench.model.arguments.get("spoils", False)
    path = bench.scratch / f"plugin{opset}.onnx"
    path.write_text(f"plugin {bench.model.name} {opset}")
    return StageOutput({"opset": opset}, model=ModelFiles(path))
