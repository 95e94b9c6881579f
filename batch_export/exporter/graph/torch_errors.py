"""Our errors and warnings are torch's too: `except torch.onnx.OnnxExporterError` goes on to work.

`errors.py` imports nothing, so the base is added here, where torch is at hand.
"""

from __future__ import annotations

import torch.onnx.errors

from batch_export.errors import BatchExportError, ExportWarning, OnnxExporterError


def join() -> None:
    """Makes torch's exporter error a base of ours; a second call changes nothing."""
    OnnxExporterError.__bases__ = (BatchExportError, torch.onnx.errors.OnnxExporterError)


class OnnxExporterWarning(ExportWarning, torch.onnx.errors.OnnxExporterWarning):
    """A warning that torch's exporter gives too, by the name that filters know."""
