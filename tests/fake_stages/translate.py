"""A translation that refers to the weights of the capture."""

from __future__ import annotations

from batch_export.digest import Digest
from batch_export.stages.output import ModelFiles, StageOutput
from fake_stages.acting import act
from fake_stages.bench import Workbench


def execute(bench: Workbench, opset: int, weights: Digest | None) -> StageOutput:
    assert bench.captured is not None
    assert weights is not None
    act(bench.model.arguments, f"Translate@{opset}")
    path = bench.scratch / f"opset{opset}.onnx"
    path.write_text(f"onnx {bench.captured} {opset}")
    return StageOutput({"opset": opset}, model=ModelFiles(path, {"weights.bin": weights}))
