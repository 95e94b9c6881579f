"""A latency of one millisecond; a provider called `crashing` kills the process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.stages.output import StageOutput

LATENCY = {"median": 1.0, "p95": 2.0, "ci_low": 0.9, "ci_high": 1.1, "runs": 20, "contended": False}


def execute(model_path: Path, reference_path: Path, provider: ProviderSpec, measure: MeasureSpec) -> StageOutput:
    assert model_path.is_file()
    if provider.name == "crashing":
        os.kill(os.getpid(), signal.SIGSEGV)
    return StageOutput({"latency_ms": LATENCY})
