"""The older entry points, `dynamo_export` and its options, over the same core. Deprecated: use `export`.

Arrives: what callers of the older functions pass. Leaves: what `export` returns.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from batch_export.errors import OnnxExporterError
from batch_export.exporter.api import export
from batch_export.exporter.capture.fake_mode import ONNXFakeContext
from batch_export.exporter.program.program import ONNXProgram
from batch_export.exporter.translate.registry import OnnxRegistry


@dataclass(frozen=True, slots=True)
class DiagnosticOptions:
    """How loud the export is.

    Attributes:
        verbosity_level: a level of Python's logging; stages are printed at `logging.INFO` and below `WARNING`.
        warnings_as_errors: whether a warning of the export raises.
    """

    verbosity_level: int = logging.INFO
    warnings_as_errors: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of `dynamo_export`.

    Attributes:
        dynamic_shapes: True makes every axis dynamic that the model leaves free, False and None none.
        fake_context: the fake mode that the model was made in.
        onnx_registry: translations, and the opset.
        diagnostic_options: how loud the export is.
    """

    dynamic_shapes: bool | None = None
    fake_context: ONNXFakeContext | None = None
    onnx_registry: OnnxRegistry | None = None
    diagnostic_options: DiagnosticOptions = field(default_factory=lambda: DiagnosticOptions(logging.WARNING))


def dynamo_export(
    model: torch.nn.Module | Callable[..., object] | torch.export.ExportedProgram,
    /,
    *model_args: object,
    export_options: ExportOptions | None = None,
    **model_kwargs: object,
) -> ONNXProgram:
    """Exports a model; deprecated in favour of `export`.

    Args:
        model: a module, a callable or an exported program.
        *model_args: positional example inputs.
        export_options: options.
        **model_kwargs: keyword example inputs.

    Raises:
        OnnxExporterError: as `export`.
    """
    warnings.warn(
        "dynamo_export() is deprecated; call export(model, args, kwargs=..., dynamic_shapes=...)",
        DeprecationWarning,
        stacklevel=2,
    )
    options = export_options or ExportOptions()
    with warnings.catch_warnings():
        if options.diagnostic_options.warnings_as_errors:
            warnings.simplefilter("error")
        try:
            return export(
                model,
                (*model_args, {}) if model_args and isinstance(model_args[-1], dict) else model_args,
                kwargs=model_kwargs or None,
                dynamic_shapes=True if options.dynamic_shapes else None,
                registry=options.onnx_registry,
                verbose=options.diagnostic_options.verbosity_level < logging.WARNING,
            )
        except Warning as warning:
            raise OnnxExporterError(
                f"a warning of the export is an error here: {warning}", next_step="leave out warnings_as_errors"
            ) from warning
