"""ONNX Runtime, of any release, as `serve.py` wants a runtime. dtypes that numpy lacks go through as their bits."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

_RAW = {
    "tensor(bfloat16)": ("bfloat16", 16, np.uint16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17, np.uint8),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18, np.uint8),
    "tensor(float8e5m2)": ("float8_e5m2", 19, np.uint8),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20, np.uint8),
}
_NUMBERS = {name: number for name, number, _ in _RAW.values()}
_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_ERRORS_ONLY = 3


class Engine:
    """One execution provider of this build."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def describe(self) -> dict[str, Any]:
        """Returns what it is."""
        providers = list(onnxruntime.get_available_providers())
        return {"version": onnxruntime.__version__, "execution_providers": providers}

    def open(self, path: str) -> Opened:
        """Opens a file where it was asked for, and nowhere else."""
        settings = self._settings
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings["threads"]
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        level = _LEVELS[settings["graph_optimization"]]
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        asked = settings["execution_provider"]
        session = onnxruntime.InferenceSession(path, options, providers=[(asked, dict(settings["options"]))])
        if asked not in session.get_providers():
            raise RuntimeError(f"{asked} could not start (its library or device is missing), the CPU would have run it")
        return Opened(session)


class Opened:
    """A session."""

    def __init__(self, session: Any) -> None:
        self._session = session
        inputs, outputs = session.get_inputs(), session.get_outputs()
        self.input_names = [value.name for value in inputs]
        self.output_names = [value.name for value in outputs]
        self.input_shapes = [[size if isinstance(size, int) else None for size in value.shape] for value in inputs]
        self.placement: dict[str, int] = {}
        told = getattr(session, "get_provider_graph_assignment_info", None)  # releases before 1.24 do not tell
        for subgraph in told() if told is not None else ():
            nodes = len(subgraph.get_nodes())
            self.placement[subgraph.ep_name] = self.placement.get(subgraph.ep_name, 0) + nodes

    def prepare(self, feeds: dict[str, Any]) -> Callable[[], Any]:
        """Returns a function that runs the file on these values."""
        session, names = self._session, self.output_names
        values = {name: _given(*feed) for name, feed in feeds.items()}
        return lambda: session.run_with_ort_values(names, values)

    def fetched(self, result: Any) -> list[tuple[str, Any]]:
        """Returns the outputs."""
        return [_fetched(value) for value in result]


def connect(settings: dict[str, Any]) -> Engine:
    """Returns the runtime as it was asked for."""
    return Engine(settings)


def _given(dtype: str, array: Any) -> Any:
    make = onnxruntime.OrtValue
    if dtype not in _NUMBERS:
        return make.ortvalue_from_numpy(np.array(array, order="C"))
    if not hasattr(make, "ortvalue_from_numpy_with_onnx_type"):
        raise RuntimeError(f"ONNX Runtime {onnxruntime.__version__} takes no {dtype} from Python")
    return make.ortvalue_from_numpy_with_onnx_type(np.array(array, order="C"), _NUMBERS[dtype])


def _fetched(value: Any) -> tuple[str, Any]:
    if value.data_type() not in _RAW:
        array = value.numpy()
        return ("str" if array.dtype.kind in "OUS" else array.dtype.name), array
    name, _, bits = _RAW[value.data_type()]
    shape = value.shape()
    data = ctypes.string_at(value.data_ptr(), int(np.prod(shape)) * np.dtype(bits).itemsize) if np.prod(shape) else b""
    return name, np.frombuffer(data, dtype=bits).reshape(shape)
