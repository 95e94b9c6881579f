"""IREE as `serve.py` wants a runtime: a compiler's target in place of an execution provider, its flags as options.

A file is imported by IREE's own reader, compiled for this machine's CPU, and run by the runtime that goes with the
compiler: in the calling thread, or with as many as were asked for.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import iree.compiler as compiler
import iree.runtime as runtime
import numpy as np
import onnx
from iree.compiler.extras import onnx_importer
from iree.compiler.ir import Context

_TARGETS = ("llvm-cpu", "vmvx")
_AS_WRITTEN = ("--iree-input-demote-f64-to-f32=false",)
"""float64 stays what it is; IREE makes it float32 unless told otherwise."""
_RAW = {
    "bfloat16": runtime.HalElementType.BFLOAT_16,
    "float8_e4m3fn": runtime.HalElementType.FLOAT_8_E4M3_FN,
    "float8_e4m3fnuz": runtime.HalElementType.FLOAT_8_E4M3_FNUZ,
    "float8_e5m2": runtime.HalElementType.FLOAT_8_E5M2,
    "float8_e5m2fnuz": runtime.HalElementType.FLOAT_8_E5M2_FNUZ,
}


class Engine:
    """A compiler with its flags, and a device of one CPU."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._target = settings["execution_provider"] or _TARGETS[0]
        self._flags = [*_AS_WRITTEN, *(f"--{name}={value}" for name, value in settings["options"].items())]
        if self._target == "llvm-cpu":
            self._flags.insert(0, "--iree-llvmcpu-target-cpu=host")
        self._driver = "local-sync" if settings["threads"] == 1 else "local-task"

    def describe(self) -> dict[str, Any]:
        """Returns what it is."""
        return {"version": importlib.metadata.version("iree-base-compiler"), "execution_providers": list(_TARGETS)}

    def open(self, path: str) -> Opened:
        """Imports and compiles a file."""
        model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
        with _plainly():
            code = compiler.compile_str(
                _imported(model), input_type="onnx", target_backends=[self._target], extra_args=self._flags
            )
            return Opened(code, model.graph, self._driver, self._target)


class Opened:
    """A compiled file."""

    def __init__(self, code: bytes, graph: onnx.GraphProto, driver: str, target: str) -> None:
        weights = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in weights]
        self.input_names = [value.name for value in inputs]
        self.output_names = [value.name for value in graph.output]
        self.input_shapes = [_shape(value.type.tensor_type) for value in inputs]
        self.placement = {target: len(graph.node)}
        self._config = runtime.Config(driver)
        context = runtime.SystemContext(config=self._config)
        module = runtime.VmModule.copy_buffer(context.instance, code)
        context.add_vm_module(module)
        (name,) = (name for name in module.function_names if not name.startswith("__") and "$" not in name)
        self._function = context.modules[module.name][name]

    def prepare(self, feeds: dict[str, Any]) -> Callable[[], Any]:
        """Returns a function that runs the file on these values."""
        values = [self._value(*feeds[name]) for name in self.input_names]
        return lambda: self._ran(values)

    def fetched(self, result: Any) -> list[tuple[str, Any]]:
        """Returns the outputs."""
        values = list(result) if isinstance(result, (tuple, list)) else [result]
        return [_fetched(value) for value in values]

    def _ran(self, values: list[Any]) -> Any:
        with _plainly():
            return self._function(*values)

    def _value(self, dtype: str, array: Any) -> Any:
        if array.dtype.kind not in "biufc":
            raise RuntimeError(f"IREE takes no {dtype}")
        raw = _RAW.get(dtype)
        if raw is None:
            return runtime.asdevicearray(self._config.device, np.array(array))
        view = self._config.device.allocator.allocate_buffer_copy(
            memory_type=runtime.MemoryType.DEVICE_LOCAL | runtime.MemoryType.HOST_VISIBLE,
            allowed_usage=runtime.BufferUsage.DEFAULT | runtime.BufferUsage.MAPPING,
            device=self._config.device,
            buffer=np.array(array),
            element_type=raw,
        )
        return runtime.DeviceArray(self._config.device, view)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Says what the compiler said is wrong: its first error, without the command line, the program and the stack."""
    try:
        yield
    except Exception as error:
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        wrong = [line.partition("error: ")[2] for line in said if "error: " in line]
        told = (wrong or said or [type(error).__name__])[0]
        operator = re.search(r'failed to legalize operation.*name = "onnx\.(\w+)"', told)
        raise RuntimeError(f"no lowering of {operator[1]}: {told}" if operator else told) from error


def connect(settings: dict[str, Any]) -> Engine:
    """Returns the runtime as it was asked for."""
    return Engine(settings)


def _imported(model: onnx.ModelProto) -> bytes:
    """Returns a file as a program of MLIR, in its binary form: weights are most of it."""
    told = onnx_importer.ModelInfo(model)
    module = told.create_module(context=Context()).operation
    importer = onnx_importer.NodeImporter.define_function(told.main_graph, module)
    importer.import_all()
    module.verify()
    written = io.BytesIO()
    module.write_bytecode(written)
    return written.getvalue()


def _shape(tensor: onnx.TypeProto.Tensor) -> list[int | None] | None:
    if not tensor.HasField("shape"):
        return None
    return [size.dim_value if size.HasField("dim_value") else None for size in tensor.shape.dim]


def _fetched(value: Any) -> tuple[str, Any]:
    view = value._buffer_view
    raw = next((name for name, kind in _RAW.items() if int(kind) == int(view.element_type)), None)
    if raw is None:
        array = np.array(value.to_host())
        return array.dtype.name, array
    bits = np.dtype(np.uint16 if raw == "bfloat16" else np.uint8)
    held = view.map().asarray(list(view.shape), bits)
    return raw, np.array(held)
