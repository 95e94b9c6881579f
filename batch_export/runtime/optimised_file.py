"""The file that ONNX Runtime really runs: its optimiser's result, written down.

A file and a provider arrive; a file of ONNX Runtime's own operators leaves, which the same build runs again with its
optimiser off. Nothing is compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batch_export.runtime.failures import LoadError
from batch_export.runtime.provider_spec import ProviderSpec


def write_optimised(source: Path, target: Path, provider: ProviderSpec) -> None:
    """Writes what ONNX Runtime's optimiser makes of a file.

    Raises:
        LoadError: ONNX Runtime refuses the file, or cannot write the result (over 2 GB).
    """
    import onnxruntime  # lazy: it starts a thread, which a process that forks must not have without need

    levels: Any = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = {
        "disabled": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
    }.get(provider.graph_optimization, levels.ORT_ENABLE_ALL)
    options.optimized_model_filepath = str(target)
    try:
        onnxruntime.InferenceSession(
            str(source), options, providers=[(provider.execution_provider, dict(provider.options))]
        )
    except Exception as error:
        raise LoadError(f"onnxruntime cannot write what its optimiser makes of {source.name}: {error}") from error
