"""How long eager PyTorch takes at the example sizes: what a file's latency is set against.

A workbench arrives; the facts `latency_ms` (plain `LatencyFacts`) and `built` leave. The module's buffers and
torch's thread count are left as they were.
"""

from __future__ import annotations

import msgspec
import torch

from batch_export import axes
from batch_export.runtime import latency
from batch_export.runtime.measuring import MeasureSpec
from batch_export.stages.output import StageOutput
from batch_export.stages.state import ModuleState
from batch_export.stages.workbench import Workbench


def execute(bench: Workbench, measure: MeasureSpec) -> StageOutput:
    """Times the module under `inference_mode` with `measure.threads` threads, as fast as torch can: fast paths on."""
    module, made = bench.module, bench.built
    arguments = bench.inputs(axes.example_sizes(bench.model))
    state = ModuleState(module)
    threads, fast_path = torch.get_num_threads(), torch.backends.mha.get_fastpath_enabled()
    torch.set_num_threads(measure.threads)
    torch.backends.mha.set_fastpath_enabled(True)
    try:
        with torch.inference_mode():
            facts = latency.measure(lambda: module(**arguments), measure)
    finally:
        torch.set_num_threads(threads)
        torch.backends.mha.set_fastpath_enabled(fast_path)
        state.restore()
    return StageOutput(facts={"latency_ms": msgspec.to_builtins(facts), "built": made})
