"""A capture whose graph is the argument `graph`."""

from __future__ import annotations

import time

from batch_export.stages.output import StageOutput
from fake_stages.acting import act
from fake_stages.bench import Workbench


def execute(bench: Workbench) -> StageOutput:
    act(bench.model.arguments, "Capture")
    bench.captured = f"{bench.model.arguments.get('graph', bench.model.name)} {bench.dynamic}"
    if bench.model.arguments.get("unstable"):
        bench.captured += f" {time.monotonic_ns()}"
    return StageOutput({"graph_digest": bench.captured, "guards": [], "strategies": ["fake"]})
