"""Capture: the module and its example inputs -> an exported program and its digest, which is that of its weights too.

A workbench arrives; facts leave. The program itself stays on the workbench for Translate, which
may follow for several opsets. No registry of translations is consulted.

Facts:
    built: what the builder made (see `built.py`).
    graph_digest: identity of the program (see `exporter/capture/fingerprint.py`).
    strategies: `[{strategy, seconds, error}]`, every one tried.
    guards: conditions that take sizes away from a dynamic axis, as text; those that always hold are left out.
    assumptions: what the capture takes for granted about the data, with the line.
    changed_attributes: plain attributes of the module that forward changes, and the file does not.
    axis_names: torch's symbol -> axis name.
    weights: `{bytes, tensors}` of the distinct large ones.
    sources: node -> `file:line` in the model.
"""

from __future__ import annotations

from typing import Any

import torch

from batch_export import axes
from batch_export.exporter.capture import fingerprint
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.graph import metadata, weights
from batch_export.stages import model as model_room
from batch_export.stages.output import StageOutput
from batch_export.stages.state import ModuleState
from batch_export.stages.workbench import Workbench


def _captured_from(bench: Workbench) -> Any:
    """The module; the exported program in its place, as it is, where axes are free (its own may be, too)."""
    program = model_room.exported_program(bench.module)
    return bench.module if program is None or bench.dynamic == axes.STATIC else program


def execute(bench: Workbench) -> StageOutput:
    """Captures the model; see the module's text for the facts.

    Raises:
        CaptureError, DynamicShapeError: as `exporter.capture.capture`.
    """
    inputs, made = bench.inputs(axes.example_sizes(bench.model)), bench.built
    state = ModuleState(bench.module)
    torch.manual_seed(bench.model.seed)
    try:
        captured = capture(
            _captured_from(bench),
            (),
            inputs,
            dynamic_shapes=model_room.dynamic_shapes(bench.model, bench.dynamic),
            guards="error" if bench.model.guards == "error" else "allow",  # facts here: sizes are proven by running
            allow_assumptions=bench.model.guards == "allow",  # other data are not
        )
    finally:
        state.restore()
    bench.captured = captured
    laid_out = weights.layout(fingerprint.program_tensors(captured.program))
    digest = weights.digest(laid_out) if laid_out.tensors else ""
    facts: dict[str, Any] = {
        "built": made,
        "graph_digest": fingerprint.graph_digest(captured.program, digest),
        "strategies": [
            {"strategy": attempt.strategy, "seconds": attempt.seconds, "error": attempt.error}
            for attempt in captured.attempts
        ],
        "guards": [guard.condition for guard in captured.restrictions],
        "assumptions": [one.text for one in captured.assumptions],
        "changed_attributes": list(captured.changed_attributes),
        "axis_names": captured.axis_names,
        "weights": {"bytes": laid_out.total, "tensors": len(laid_out.tensors)},
        "sources": {
            node.name: source
            for node in captured.program.graph.nodes
            if (source := metadata.source_location(node)) is not None
        },
    }
    return StageOutput(facts=facts)
