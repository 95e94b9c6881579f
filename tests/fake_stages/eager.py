"""Eager's latency: three milliseconds."""

from __future__ import annotations

from batch_export.runtime.measuring import MeasureSpec
from batch_export.stages.output import StageOutput
from fake_stages.acting import act
from fake_stages.bench import Workbench


def execute(bench: Workbench, measure: MeasureSpec) -> StageOutput:
    act(bench.model.arguments, "Eager")
    return StageOutput(
        {"latency_ms": {"median": 3.0, "p95": 3.0, "ci_low": 3.0, "ci_high": 3.0, "runs": 20, "contended": False}}
    )
