"""A translation that refers to weights, which are the argument `weights`."""

from __future__ import annotations

from batch_export.digest import content_name, digest_bytes
from batch_export.stages.output import ModelFiles, StageOutput
from fake_stages.acting import act
from fake_stages.bench import Workbench


def execute(bench: Workbench, opset: int) -> StageOutput:
    assert bench.captured is not None
    act(bench.model.arguments, f"Translate@{opset}")
    path = bench.scratch / f"opset{opset}.onnx"
    path.write_text(f"onnx {bench.captured} {opset}")
    content = str(bench.model.arguments.get("weights", "weights")).encode() * 100
    weights = bench.scratch / "weights"
    weights.write_bytes(content)
    return StageOutput({"opset": opset}, model=ModelFiles(path, {content_name(digest_bytes(content)): weights}))
