"""OpenVINO as `serve.py` wants a runtime: a device in place of an execution provider, its properties as options."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import openvino

_RAW = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}


class Engine:
    """A core whose device has its properties."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._core = openvino.Core()
        self._device = settings["execution_provider"] or "CPU"
        threads = {"INFERENCE_NUM_THREADS": str(settings["threads"])} if self._device == "CPU" else {}
        if self._device in self._core.available_devices:  # one that is not there is told by `describe`
            with _plainly():
                self._core.set_property(self._device, {**threads, **settings["options"]})

    def describe(self) -> dict[str, Any]:
        """Returns what it is."""
        return {"version": openvino.__version__, "execution_providers": list(self._core.available_devices)}

    def open(self, path: str) -> Opened:
        """Compiles a file."""
        with _plainly():
            return Opened(self._core, self._core.read_model(path), self._device)


class Opened:
    """A compiled file."""

    def __init__(self, core: Any, model: Any, device: str) -> None:
        self.input_names = [_name(value) for value in model.inputs]
        self.output_names = [_name(value) for value in model.outputs]
        self.input_shapes = [
            [size.get_length() if size.is_static else None for size in value.partial_shape]
            if value.partial_shape.rank.is_static
            else None
            for value in model.inputs
        ]
        self._types = {_name(value): value.element_type for value in model.inputs}
        self._compiled = core.compile_model(model, device)
        self._request = self._compiled.create_infer_request()
        ran_by = self._compiled.get_property("EXECUTION_DEVICES")
        self.placement = {str(ran_by[0] if ran_by else device): len(self._compiled.get_runtime_model().get_ops())}

    def prepare(self, feeds: dict[str, Any]) -> Callable[[], Any]:
        """Returns a function that runs the file on these values."""
        for position, name in enumerate(self.input_names):
            dtype, array = feeds[name]
            self._request.set_input_tensor(position, self._tensor(dtype, array))
        return self._infer

    def fetched(self, result: Any) -> list[tuple[str, Any]]:
        """Returns the outputs."""
        del result
        return [_value(self._request.get_output_tensor(position)) for position in range(len(self.output_names))]

    def _infer(self) -> None:
        with _plainly():
            self._request.infer()

    def _tensor(self, dtype: str, array: Any) -> Any:
        kind = next((kind for kind, name in _RAW.items() if name == dtype), None)
        if kind is not None:
            return openvino.Tensor(np.array(array), list(array.shape), getattr(openvino.Type, kind))
        if dtype == "str":
            return openvino.Tensor(np.array(array, dtype=str))
        return openvino.Tensor(np.array(array))


def connect(settings: dict[str, Any]) -> Engine:
    """Returns the runtime as it was asked for."""
    return Engine(settings)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Leaves the places in OpenVINO's own sources out of what it says, so that its first line says what is wrong."""
    try:
        yield
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        telling = [line for line in lines if not line.startswith("Exception from ")]
        raise RuntimeError("\n".join(telling or lines)) from error


def _name(value: Any) -> str:
    return str(value.get_any_name())


def _value(tensor: Any) -> tuple[str, Any]:
    raw = _RAW.get(tensor.element_type.get_type_name())
    if raw is not None:
        bits = np.frombuffer(
            bytes(memoryview(tensor.data.view(np.uint8))), np.uint16 if raw == "bfloat16" else np.uint8
        )
        return raw, bits.reshape(list(tensor.shape))
    if tensor.element_type == openvino.Type.string:
        return "str", np.array(tensor.str_data, dtype=object).reshape(list(tensor.shape))
    data = np.array(tensor.data)
    return data.dtype.name, data.reshape(list(tensor.shape))
