"""One file in IREE."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import iree.compiler as compiler
import iree.runtime as runtime
import numpy as np
import onnx
from iree.compiler.extras import onnx_importer
from iree.compiler.ir import Context


def version() -> str:
    """Returns the compiler's version."""
    return importlib.metadata.version("iree-base-compiler")


def outputs(path: str, settings: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    """Compiles and runs the file and returns its outputs in order."""
    model = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True)
    told = onnx_importer.ModelInfo(model)
    program = told.create_module(context=Context()).operation
    onnx_importer.NodeImporter.define_function(told.main_graph, program).import_all()
    target = settings["execution_provider"] or "llvm-cpu"
    flags = ["--iree-input-demote-f64-to-f32=false"]
    if target == "llvm-cpu":
        flags.append("--iree-llvmcpu-target-cpu=host")
    flags += [f"--{name}={value}" for name, value in settings["options"].items()]
    code = compiler.compile_str(str(program), input_type="onnx", target_backends=[target], extra_args=flags)
    context = runtime.SystemContext(config=runtime.Config("local-sync"))
    module = runtime.VmModule.copy_buffer(context.instance, code)
    context.add_vm_module(module)
    (name,) = (name for name in module.function_names if not name.startswith("__") and "$" not in name)
    weights = {tensor.name for tensor in model.graph.initializer}
    values = [inputs[value.name] for value in model.graph.input if value.name not in weights]
    result = context.modules[module.name][name](*values)
    return [np.asarray(value) for value in (result if isinstance(result, (tuple, list)) else [result])]
