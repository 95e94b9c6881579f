"""How long a file takes at the example sizes. Runs alone on the machine: the exclusive lane.

An ONNX file, the model's tensor file and a provider arrive; the fact `latency_ms` (plain `LatencyFacts`) leaves.
Outputs are not looked at.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from batch_export.record import Failure
from batch_export.runtime import latency
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.tensor_file import TensorFile
from batch_export.stages.output import StageOutput
from batch_export.stages.run import as_plain_feeds, opened


def execute(model_path: Path, reference_path: Path, provider: ProviderSpec, measure: MeasureSpec) -> StageOutput:
    """Times the file with `measure.threads` threads."""
    session = opened(model_path, provider, measure.threads)
    if isinstance(session, Failure):
        return StageOutput(failure=session)
    try:
        run = session.prepare(as_plain_feeds(session, TensorFile(reference_path)))
        facts = latency.measure(run, measure, provider.warm_up)
    finally:
        session.close()
    return StageOutput(facts={"latency_ms": msgspec.to_builtins(facts)})
