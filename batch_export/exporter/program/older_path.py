"""The door to the TorchScript exporter, which lives outside the core and is handed in by whoever calls `export`.

Arrives: what `export` was given, in canonical form, and the exporter as a callable. Leaves: an ONNXProgram whose
`exporter` is `torchscript`. Nothing is translated here.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch.export import Dim
from torch.utils import _pytree as pytree

from batch_export.errors import OnnxExporterError
from batch_export.exporter.capture import capture as capturing
from batch_export.exporter.capture import dynamic_shapes as shapes
from batch_export.exporter.capture import torchscript
from batch_export.exporter.capture.kept_settings import settings_kept
from batch_export.exporter.capture.kept_state import trace_undone
from batch_export.exporter.capture.turns import in_turn
from batch_export.exporter.program.nested_inputs import form_of_call
from batch_export.exporter.program.program import ONNXProgram
from batch_export.exporter.program.provenance import Provenance
from batch_export.exporter.report.journal import Journal
from batch_export.plugin import Exporter


@in_turn
def export_torchscript(
    exporter: Exporter | None,
    model: object,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    opset_version: int,
    dynamic_shapes: object,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    journal: Journal,
) -> ONNXProgram:
    """Exports with the TorchScript exporter.

    Args:
        exporter: the TorchScript exporter, if there is one.
        model: a module, a callable, or a scripted module or function.
        args: positional example inputs.
        kwargs: keyword example inputs.
        opset_version: the ONNX opset.
        dynamic_shapes: as `export` takes them.
        input_names: names of the ONNX inputs, in order.
        output_names: names of the ONNX outputs, in order.
        journal: what the export noted so far: with the core's error, when this is its fallback.

    Raises:
        OnnxExporterError: if there is no such exporter here, the model is an exported program, or the exporter failed.
    """
    if exporter is None:
        raise OnnxExporterError(
            "dynamo=False and fallback=True need the TorchScript exporter, which the core does not have",
            next_step="call batch_export.export, or pass torchscript=batch_export.peers.torchscript.export",
        )
    if isinstance(model, torch.export.ExportedProgram):
        raise OnnxExporterError(
            "an exported program has no TorchScript form", next_step="pass the module that it was captured from"
        )
    module = model if isinstance(model, torch.jit.ScriptModule) else capturing.as_module(model)
    if isinstance(model, torch.jit.ScriptModule):
        args, kwargs = torchscript.every_input(model, args, kwargs), {}
    with tempfile.TemporaryDirectory(prefix="batch_export_") as folder:
        path = Path(folder) / "model.onnx"
        try:
            with settings_kept(), trace_undone(model, args, kwargs):
                exporter(
                    module,
                    args,
                    kwargs,
                    path=path,
                    opset_version=opset_version,
                    dynamic_shapes=_axes_by_tensor(module, args, kwargs, dynamic_shapes),
                    input_names=input_names,
                    output_names=output_names,
                )
        except Exception as error:
            raise OnnxExporterError(
                f"the TorchScript exporter failed: {type(error).__name__}: {error}",
                next_step="leave out dynamo=False to use the exporter that captures with torch.export",
            ) from error
        loaded = ir.load(path)
        ir.external_data.load_to_model(loaded)
    kinds = [("USER_OUTPUT", "")] * len(loaded.graph.outputs)
    provenance = Provenance(
        exporter="torchscript",
        export_exception=journal.error,
        output_kinds=kinds,
        seconds=journal.seconds,
        diagnostic_context=journal,
    )
    program = ONNXProgram(loaded, None, provenance)
    program.call_form = form_of_call(_parameters(module), args, kwargs)
    return program


def _parameters(module: torch.nn.Module) -> list[str]:
    """The names of forward's parameters that may be given by position."""
    if isinstance(module, torch.jit.ScriptModule):
        forward: Any = module.forward
        return [formal.name for formal in forward.schema.arguments[1:]]
    parameters = inspect.signature(module.forward).parameters.values()
    return [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]


def _axes_by_tensor(
    module: torch.nn.Module, args: tuple[object, ...], kwargs: dict[str, object], dynamic_shapes: object
) -> dict[str, object] | None:
    """`{axis: name}` at each tensor of the inputs, None at everything else."""
    if dynamic_shapes is None or dynamic_shapes is False:
        return None
    asked = shapes.canonical(dynamic_shapes, module, args, kwargs)
    named = iter(asked.names)

    def axes(leaf: object) -> object:
        if not isinstance(leaf, torch.Tensor):
            return None
        return {axis: name or Dim.AUTO for axis, name in next(named).items()}

    by_name: dict[str, object] = pytree.tree_map(axes, shapes.bind_names(module, args, kwargs))
    return by_name
