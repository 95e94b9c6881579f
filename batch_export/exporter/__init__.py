"""The exporter core. A PyTorch model in, an ONNX program out; it knows nothing of sweeps, configs or caches."""

from batch_export.exporter.api import export, to_onnx, warm
from batch_export.exporter.graph import torch_errors
from batch_export.exporter.program.program import ONNXProgram
from batch_export.exporter.translate.registry import ONNXFunction, OnnxRegistry

torch_errors.join()

__all__ = ["ONNXFunction", "ONNXProgram", "OnnxRegistry", "export", "to_onnx", "warm"]
