"""The torch model run once, for a comparison: what a file is held against.

Arrives: a program, its model and inputs. Leaves: the model's outputs in the order of the file's; the model, the inputs
and the settings of the process stay as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from batch_export.calling.fast_paths import without_fast_paths
from batch_export.exporter.capture.grad_modes import recording
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import run_undone
from batch_export.exporter.capture.turns import in_turn
from batch_export.exporter.program.program import ONNXProgram


@in_turn
def model_outputs(
    program: ONNXProgram, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Sequence[torch.Tensor]:
    """What eager gives; whatever the model raises goes on."""
    if isinstance(model, torch.export.ExportedProgram):
        model = model.module()
    inputs, keywords = copy.deepcopy((tuple(args), dict(kwargs)))
    with run_undone(model), settings_kept(), recording(model), without_fast_paths():
        found = program.adapt_torch_outputs_to_onnx(model(*inputs, **keywords))
        return [one.detach().clone() for one in found]  # a buffer that is returned is put back


def gives_error_codes(program: torch.export.ExportedProgram) -> bool:
    """Whether an operator says by a number that it failed (`cholesky_ex`), beside results that then mean nothing."""
    schemas = (getattr(node.target, "_schema", None) for node in program.graph.nodes)
    return any(result.name == "info" for schema in schemas if schema is not None for result in schema.returns)
