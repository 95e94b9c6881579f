"""Float64 values that nobody reads; `do: {Oracle: ...}` makes the step fail, `doubts` what comes of it doubtful."""

from __future__ import annotations

from pathlib import Path

from batch_export.stages.output import StageOutput
from fake_stages.acting import act
from fake_stages.bench import Workbench


def execute(bench: Workbench, reference_path: Path, case: int) -> StageOutput:
    assert reference_path.is_file()
    act(bench.model.arguments, "Oracle")
    if bench.model.arguments.get("doubts") == "always" or (bench.model.arguments.get("doubts") and bench.was_lent):
        return StageOutput(is_doubtful=True)
    path = bench.scratch / "oracle"
    path.write_text(f"{bench.model.name} in float64 at case {case}")
    return StageOutput({"case": case, "note": ""}, {"oracle": path})
