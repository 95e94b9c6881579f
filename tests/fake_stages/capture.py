"""A capture whose graph is the argument `graph`, and whose weights are the argument `weights`."""

from __future__ import annotations

import time

from batch_export.stages.output import StageOutput
from fake_stages.acting import act
from fake_stages.bench import Workbench


def execute(bench: Workbench) -> StageOutput:
    act(bench.model.arguments, "Capture")
    path = bench.scratch / "weights"
    path.write_text(str(bench.model.arguments.get("weights", "weights")) * 100)
    bench.captured = f"{bench.model.arguments.get('graph', bench.model.name)} {bench.dynamic}"
    if bench.model.arguments.get("unstable"):
        bench.captured += f" {time.monotonic_ns()}"
    return StageOutput({"graph_digest": bench.captured, "guards": [], "strategies": ["fake"]}, {"weights": path})
