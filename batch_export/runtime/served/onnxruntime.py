"""ONNX Runtime, of any release, as `serve.py` wants a runtime; `runtime/ort.py` uses it in our own process.

An execution provider is the one asked for or an error, never another one in silence. dtypes that numpy lacks go through
as their bits. With I/O binding the inputs of a timed run lie on the device before it, and its outputs stay there.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

_RAW = {
    "tensor(bfloat16)": ("bfloat16", 16, np.uint16),
    "tensor(float8e4m3fn)": ("float8_e4m3fn", 17, np.uint8),
    "tensor(float8e4m3fnuz)": ("float8_e4m3fnuz", 18, np.uint8),
    "tensor(float8e5m2)": ("float8_e5m2", 19, np.uint8),
    "tensor(float8e5m2fnuz)": ("float8_e5m2fnuz", 20, np.uint8),
    "tensor(uint4)": ("uint4", 21, np.uint8),
    "tensor(int4)": ("int4", 22, np.uint8),
}
"""ONNX Runtime's name of a type that numpy lacks -> the dtype's name, its number in `onnx.TensorProto`, its bits."""
_NUMBERS = {name: number for name, number, _ in _RAW.values()}
_HALF_BYTES = ("uint4", "int4")
_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_ERRORS_ONLY = 3
_CPU = "CPUExecutionProvider"
_DEVICES = {
    "CUDAExecutionProvider": "cuda",
    "TensorrtExecutionProvider": "cuda",
    "NvTensorRTRTXExecutionProvider": "cuda",
    "ROCMExecutionProvider": "cuda",
    "MIGraphXExecutionProvider": "cuda",
    "DmlExecutionProvider": "dml",
    "CANNExecutionProvider": "cann",
}
"""Execution providers with devices of their own: what ONNX Runtime calls the memory that lies there."""
_SMALLEST = (
    b'\x08\x07:4\n\r\n\x01x\x12\x01y"\x03Neg:\x00\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\r"
)
"""A model of one Neg (opset 13, IR 7), float32[1], which every release opens: options are tried with it."""


class UnavailableError(RuntimeError):
    """The machine lacks something: a device, a library. Neither the file nor the options are to blame."""


class Engine:
    """One execution provider of this build, or of a plug-in's library, with its options.

    Args:
        settings: what `serve.py` says; besides `device` (which of the execution provider's devices), `io_binding`,
            `after` (execution providers that take what this one leaves, in order) and `plugin` (a library's path, or
            the package whose `get_library_path()` gives it).

    Raises:
        UnavailableError: the plug-in's library does not load, or finds no device; with options, it does not start.
        RuntimeError: the execution provider does not take the options.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._asked = str(settings["execution_provider"])
        self._devices: list[Any] = []
        if _DEVICES.get(self._asked) == "cuda":
            _load_libraries()
        if settings["plugin"]:
            register(settings["plugin"])
            self._devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == self._asked]
            self._require_device()
        if settings["options"] and self._is_there():
            self._try_out()

    def describe(self) -> dict[str, Any]:
        """Returns what it is, having started it once.

        Raises:
            UnavailableError: it does not start.
        """
        if not self._settings["options"] and self._is_there():
            self._try_out()
        there = [*onnxruntime.get_available_providers(), *dict.fromkeys(device.ep_name for device in self._devices)]
        return {"version": onnxruntime.__version__, "execution_providers": there}

    def open(self, path: str) -> Opened:
        """Opens a file where it was asked for, and nowhere else.

        Raises:
            UnavailableError: the execution provider starts with no file.
        """
        settings = self._settings
        try:
            session = self._session(path, settings["options"])
        except Exception:
            if self._is_there() and not settings["options"]:
                self._try_out()
            raise
        self._require_start(session)
        device = (_DEVICES.get(self._asked, "cpu"), settings["device"]) if settings["io_binding"] else None
        return Opened(session, device)

    def _session(self, model: Any, given: dict[str, str]) -> Any:
        settings = self._settings
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings["threads"]
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        level = _LEVELS[settings["graph_optimization"]]
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if self._devices:
            options.add_provider_for_devices([self._devices[settings["device"]]], dict(given))
            return onnxruntime.InferenceSession(model, options)
        asked = [(self._asked, self._with_device(self._asked, given))]
        after = [(name, self._with_device(name, {})) for name in settings["after"]]
        return onnxruntime.InferenceSession(model, options, providers=[*asked, *after], enable_fallback=0)

    def _with_device(self, name: str, options: dict[str, str]) -> dict[str, str]:
        chosen = {"device_id": str(self._settings["device"])} if name in _DEVICES else {}
        return {**chosen, **options}

    def _require_device(self) -> None:
        found, place = len(self._devices), self._settings["device"]
        if not found:
            raise UnavailableError(f"the library of {self._asked} found no device of its own on this machine")
        if place >= found:
            raise UnavailableError(f"{self._asked} has no device {place}; there {_are(found)} from 0 on")

    def _require_start(self, session: Any) -> None:
        if self._asked not in session.get_providers():
            raise UnavailableError(
                f"onnxruntime could not start {self._asked} (its library or device is missing) and would have used the"
                " CPU"
            )

    def _is_there(self) -> bool:
        """Whether it is in this build, or a plug-in's device was found."""
        return bool(self._devices) or self._asked in onnxruntime.get_available_providers()

    def _try_out(self) -> None:
        """Starts it with its options and a model of one node; what does not start without options either is not there.

        The CPU's execution provider takes no options, and does not say so.
        """
        options = self._settings["options"]
        if self._asked == _CPU:
            if options:
                raise RuntimeError(f"{_CPU} has no options, and got {', '.join(options)}")
            return
        try:
            self._require_start(self._session(_SMALLEST, options))
        except UnavailableError:
            raise
        except Exception as error:
            if options and self._starts_without_options():
                raise
            told = str(error).strip().splitlines() or [type(error).__name__]
            said = re.sub(r"^\S+:\d+ .*?\) ", "", told[-1])  # without the place in its own code
            raise UnavailableError(f"onnxruntime could not start {self._asked}: {said}") from error

    def _starts_without_options(self) -> bool:
        try:
            self._require_start(self._session(_SMALLEST, {}))
        except Exception:
            return False
        return True


@functools.cache
def _load_libraries() -> None:
    """Loads CUDA's and cuDNN's libraries from their pip packages, where there are such: no loader looks there."""
    load = getattr(onnxruntime, "preload_dlls", None)  # from 1.21 on; it prints what it did not find
    if load is not None:
        with contextlib.redirect_stdout(io.StringIO()):
            load()


class Opened:
    """A session; `device` is the memory that I/O binding uses, with its index, or None."""

    takes_structures = True

    def __init__(self, session: Any, device: tuple[str, int] | None = None) -> None:
        self._session = session
        self._device = device
        inputs, outputs = session.get_inputs(), session.get_outputs()
        self.input_names = [value.name for value in inputs]
        self.output_names = [value.name for value in outputs]
        self.input_shapes = [
            [size if isinstance(size, int) else None for size in value.shape]
            if value.type.startswith("tensor(")
            else None
            for value in inputs
        ]
        self._types = {value.name: value.type for value in (*inputs, *outputs)}
        types = list(self._types.values())
        self._bound = device is not None and all(_is_number(kind) for kind in types)
        self._only_numpy = not self._bound and not any(kind in _RAW for kind in types)
        self.placement: dict[str, int] = {}
        told = getattr(session, "get_provider_graph_assignment_info", None)  # releases before 1.24 do not tell
        for subgraph in told() if told is not None else ():
            nodes = len(subgraph.get_nodes())
            self.placement[subgraph.ep_name] = self.placement.get(subgraph.ep_name, 0) + nodes

    def prepare(self, feeds: dict[str, Any]) -> Callable[[], Any]:
        """Returns a function that runs the file on these values, with every conversion of them already done."""
        session, names = self._session, self.output_names
        if self._bound:
            return self._binding(feeds)
        if self._only_numpy:
            arrays = {name: _plain(name, feed) for name, feed in feeds.items()}
            return lambda: session.run(None, arrays)
        values = {name: _given(name, feed) for name, feed in feeds.items()}
        return lambda: session.run_with_ort_values(names, values)

    def fetched(self, result: Any) -> list[Any]:
        """Returns the outputs."""
        if self._only_numpy:
            return [_structure(value, self._types[name]) for name, value in zip(self.output_names, result)]  # noqa: B905
        return [_fetched(value) for value in result]

    def _binding(self, feeds: dict[str, Any]) -> Callable[[], Any]:
        """Inputs lie on the device before the run, outputs stay there; bits that only a pointer reads, beside it."""
        assert self._device is not None
        session, (kind, index) = self._session, self._device
        binding = session.io_binding()
        for name, feed in feeds.items():
            binding.bind_ortvalue_input(name, _given(name, feed, self._device))
        for name in self.output_names:
            if self._types[name] in _RAW:
                binding.bind_output(name, "cpu")
            else:
                binding.bind_output(name, kind, index)

        def run() -> Any:
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()
            return binding.get_outputs()

        return run


def connect(settings: dict[str, Any]) -> Engine:
    """Returns the runtime as it was asked for."""
    return Engine(settings)


@functools.cache
def register(plugin: str) -> None:
    """Registers a plug-in execution provider's library for the life of this process.

    Raises:
        UnavailableError: this release has no plug-ins, or the library is not there or does not load.
    """
    if not hasattr(onnxruntime, "register_execution_provider_library"):
        raise UnavailableError(f"ONNX Runtime {onnxruntime.__version__} takes no plug-in execution providers")
    try:
        path = plugin if Path(plugin).suffix else str(import_module(plugin).get_library_path())
        onnxruntime.register_execution_provider_library(Path(path).stem, path)
    except Exception as error:
        raise UnavailableError(f"the plug-in {plugin} cannot be registered: {error}") from error


def _is_number(kind: str) -> bool:
    return kind.startswith("tensor(") and kind != "tensor(string)"


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


def _plain(name: str, feed: Any) -> Any:
    """A value as `InferenceSession.run` takes it."""
    kind, content = feed
    if kind == "sequence":
        return [_plain(name, item) for item in content]
    if kind in _NUMBERS:
        raise RuntimeError(f"ONNX Runtime takes no sequence or optional value of {kind} from Python ({name})")
    return content


def _structure(value: Any, kind: str) -> Any:
    """What `InferenceSession.run` gave, in `serve.py`'s words."""
    if value is None:
        return "nothing", None
    if isinstance(value, list):
        return "sequence", [_structure(item, kind) for item in value]
    if isinstance(value, dict):
        raise RuntimeError(f"ONNX Runtime gives a map ({kind}), which is neither a tensor nor a sequence")
    array = np.asarray(value)
    return ("str" if array.dtype.kind in "OUS" else array.dtype.name), array


def _given(name: str, feed: Any, device: tuple[str, int] | None = None) -> Any:
    dtype, array = feed
    make = onnxruntime.OrtValue
    if dtype in ("sequence", "nothing", "str"):
        raise RuntimeError(f"ONNX Runtime takes no {dtype} beside values of dtypes that numpy lacks ({name})")
    if dtype not in _NUMBERS:
        return make.ortvalue_from_numpy(np.array(array, order="C"), *(device or ()))
    packed: Any = _packed(array) if dtype in _HALF_BYTES else np.array(array, order="C")
    if not hasattr(make, "ortvalue_from_numpy_with_onnx_type"):
        raise RuntimeError(f"ONNX Runtime {onnxruntime.__version__} takes no {dtype} from Python")
    if dtype not in _HALF_BYTES:
        return make.ortvalue_from_numpy_with_onnx_type(packed, _NUMBERS[dtype])
    value = make.ortvalue_from_shape_and_type(list(np.shape(array)), _NUMBERS[dtype])
    ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
    return value


def _fetched(value: Any) -> tuple[str, Any]:
    if value.data_type() not in _RAW:
        array = value.numpy()
        return ("str" if array.dtype.kind in "OUS" else array.dtype.name), array
    name, _, bits = _RAW[value.data_type()]
    shape = value.shape()
    count = int(np.prod(shape))
    size = (count + 1) // 2 if name in _HALF_BYTES else count * np.dtype(bits).itemsize
    data = np.frombuffer(ctypes.string_at(value.data_ptr(), size) if count else b"", dtype=bits)
    return name, (_unpacked(data, count) if name in _HALF_BYTES else data).reshape(shape)


def _packed(bits: Any) -> Any:
    """Two of four bits in a byte, the first in the lower half, as ONNX has them."""
    flat = np.append(np.asarray(bits, np.uint8).reshape(-1) & 0xF, np.zeros(np.size(bits) % 2, np.uint8))
    return np.ascontiguousarray(flat[0::2] | flat[1::2] << 4)


def _unpacked(data: Any, count: int) -> Any:
    return np.stack([data & 0xF, data >> 4], axis=-1).reshape(-1)[:count]
