"""Sessions of ONNX Runtime: the execution provider requested or an error, never another one in silence.

A file and a `ProviderSpec` arrive; a session leaves (see `session.Session` for its members). bfloat16 and float8, which
numpy lacks, go in and out as OrtValues over their bits. Nothing here compares or judges.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from batch_export.numbers.values import Array, RawTensor, Value, raw_dtype
from batch_export.runtime.failures import LoadError, ProviderUnavailableError
from batch_export.runtime.provider_spec import ProviderSpec

_RAW_TYPES = {
    "tensor(bfloat16)": ("bfloat16", 16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18),
    "tensor(float8e5m2)": ("float8_e5m2", 19),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20),
}
"""ONNX Runtime's name of a type that numpy lacks -> our name of the dtype and its number in `onnx.TensorProto`."""

NEWEST_OPSET = 27
"""The newest opset that ONNX Runtime 1.31 reads: it counts 27 as not released, and takes it where the variable below
allows that."""

_ALLOWED = ("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")

_ERRORS_ONLY = 3


class OrtSession:
    """A session of ONNX Runtime; see `Session` for the members."""

    def __init__(self, path: Path, provider: ProviderSpec, threads: int) -> None:
        import onnxruntime  # lazy: it starts a thread, which a process that forks must not have without need

        self._runtime: Any = onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        options.graph_optimization_level = _level(onnxruntime, provider)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        os.environ.setdefault(*_ALLOWED)
        start = perf_counter()
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(path),
                options,
                providers=[(provider.execution_provider, dict(provider.options))],
                enable_fallback=0,
            )
        except Exception as error:
            raise LoadError(f"onnxruntime cannot load {path.name}: {error}") from error
        self.load_seconds = perf_counter() - start
        if provider.execution_provider not in self._session.get_providers():
            self._session = None
            raise ProviderUnavailableError(
                f"provider {provider.name}: onnxruntime could not start {provider.execution_provider}"
                " (its library or device is missing) and would have used the CPU"
            )
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        self.input_names: tuple[str, ...] = tuple(value.name for value in inputs)
        self.output_names: tuple[str, ...] = tuple(value.name for value in outputs)
        self.input_shapes: tuple[tuple[int | None, ...] | None, ...] = tuple(
            tuple(size if isinstance(size, int) else None for size in value.shape) for value in inputs
        )
        self._only_numpy = not any(value.type in _RAW_TYPES for value in (*inputs, *outputs))
        self.placement: dict[str, int] = {}
        for subgraph in self._session.get_provider_graph_assignment_info():
            nodes = len(subgraph.get_nodes())
            self.placement[subgraph.ep_name] = self.placement.get(subgraph.ep_name, 0) + nodes

    def prepare(self, feeds: Mapping[str, Value]) -> Callable[[], Sequence[Any]]:
        """Returns a function that runs the file on these feeds, with every conversion of the feeds already done."""
        session = self._session
        if self._only_numpy:
            return lambda: session.run(None, feeds)
        names = list(self.output_names)
        values = {name: self._ort_value(value) for name, value in feeds.items()}
        return lambda: session.run_with_ort_values(names, values)

    def run(self, feeds: Mapping[str, Value]) -> list[Value]:
        """Runs the file and returns its outputs in order; RuntimeError and its like come from ONNX Runtime."""
        outputs = self.prepare(feeds)()
        return list(outputs) if self._only_numpy else [_fetched(output) for output in outputs]

    def close(self) -> None:
        """Frees the model's memory."""
        self._session = None

    def _ort_value(self, value: Value) -> Any:
        make = self._runtime.OrtValue
        if not isinstance(value, RawTensor):
            return make.ortvalue_from_numpy(np.asarray(value, order="C"))  # ascontiguousarray makes scalars vectors
        number = next(number for name, number in _RAW_TYPES.values() if name == value.dtype)
        return make.ortvalue_from_numpy_with_onnx_type(np.asarray(value.bits, order="C"), number)


def _level(onnxruntime: Any, provider: ProviderSpec) -> Any:
    levels = onnxruntime.GraphOptimizationLevel
    known = {
        "disabled": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }
    if provider.graph_optimization not in known:
        raise LoadError(
            f"provider {provider.name}: graph_optimization is {provider.graph_optimization!r};"
            f" use one of {', '.join(known)}"
        )
    return known[provider.graph_optimization]


def _fetched(output: Any) -> Value:
    """Copies an OrtValue out; dtypes that numpy lacks are read through the data pointer."""
    if output.data_type() not in _RAW_TYPES:
        plain: Array = output.numpy()
        return plain
    name, _ = _RAW_TYPES[output.data_type()]
    bits = raw_dtype(name)
    data = ctypes.string_at(output.data_ptr(), output.tensor_size_in_bytes()) if np.prod(output.shape()) else b""
    return RawTensor(name, np.frombuffer(data, dtype=bits).reshape(output.shape()))
