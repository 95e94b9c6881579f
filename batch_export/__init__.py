"""batch_export: a PyTorch to ONNX exporter of its own, and the batch runner that proves it on a matrix of cells.

The exporter's names are fetched from its modules on first use, so that importing the package (for planning, `--help` or
a report) never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from batch_export.version import __version__

if TYPE_CHECKING:
    from torch.onnx import is_in_onnx_export

    from batch_export.api.export import export
    from batch_export.api.sweep import Run, open_run, sweep
    from batch_export.errors import (
        BatchExportError,
        CaptureError,
        DecompositionError,
        DynamicShapeError,
        ExportWarning,
        MissingOperatorError,
        ModelError,
        OnnxExporterError,
        OpsetError,
        OptimisationError,
        RunError,
        SaveError,
        TranslationError,
        UsageError,
        VerificationError,
    )
    from batch_export.exporter.capture.fake_mode import ONNXFakeContext, enable_fake_mode
    from batch_export.exporter.diagnostics.verify import VerificationInfo, verify_onnx_program
    from batch_export.exporter.legacy import DiagnosticOptions, ExportOptions, dynamo_export
    from batch_export.exporter.program.inference import ONNXRuntimeOptions
    from batch_export.exporter.program.program import ONNXProgram
    from batch_export.exporter.translate.registry import OnnxRegistry

__all__ = [
    "BatchExportError",
    "CaptureError",
    "DecompositionError",
    "DiagnosticOptions",
    "DynamicShapeError",
    "ExportOptions",
    "ExportWarning",
    "MissingOperatorError",
    "ModelError",
    "ONNXFakeContext",
    "ONNXProgram",
    "ONNXRuntimeOptions",
    "OnnxExporterError",
    "OnnxRegistry",
    "OpsetError",
    "OptimisationError",
    "Run",
    "RunError",
    "SaveError",
    "TranslationError",
    "UsageError",
    "VerificationError",
    "VerificationInfo",
    "__version__",
    "dynamo_export",
    "enable_fake_mode",
    "export",
    "is_in_onnx_export",
    "open_run",
    "sweep",
    "verify_onnx_program",
]

_HOMES = {
    "BatchExportError": "batch_export.errors",
    "CaptureError": "batch_export.errors",
    "DecompositionError": "batch_export.errors",
    "DiagnosticOptions": "batch_export.exporter.legacy",
    "DynamicShapeError": "batch_export.errors",
    "ExportOptions": "batch_export.exporter.legacy",
    "ExportWarning": "batch_export.errors",
    "MissingOperatorError": "batch_export.errors",
    "ModelError": "batch_export.errors",
    "ONNXFakeContext": "batch_export.exporter.capture.fake_mode",
    "ONNXProgram": "batch_export.exporter.program.program",
    "ONNXRuntimeOptions": "batch_export.exporter.program.inference",
    "OnnxExporterError": "batch_export.errors",
    "OnnxRegistry": "batch_export.exporter.translate.registry",
    "OpsetError": "batch_export.errors",
    "OptimisationError": "batch_export.errors",
    "Run": "batch_export.api.sweep",
    "RunError": "batch_export.errors",
    "SaveError": "batch_export.errors",
    "TranslationError": "batch_export.errors",
    "UsageError": "batch_export.errors",
    "VerificationError": "batch_export.errors",
    "VerificationInfo": "batch_export.exporter.diagnostics.verify",
    "dynamo_export": "batch_export.exporter.legacy",
    "enable_fake_mode": "batch_export.exporter.capture.fake_mode",
    "export": "batch_export.api.export",
    "is_in_onnx_export": "torch.onnx",
    "open_run": "batch_export.api.sweep",
    "sweep": "batch_export.api.sweep",
    "verify_onnx_program": "batch_export.exporter.diagnostics.verify",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'batch_export' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)  # lazy: imports torch (PEP 562)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
