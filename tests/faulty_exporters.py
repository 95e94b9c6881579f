"""Exporters with planted faults, for the tests of what finds them: our own exporter, and then one thing made wrong."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import onnx
import torch

from batch_export.exporter.api import export


def _exported(module: Any, args: Any, kwargs: Any, path: Path, opset_version: int, **options: Any) -> onnx.ModelProto:
    export(
        module,
        args,
        path,
        kwargs=kwargs,
        opset_version=opset_version,
        dynamic_shapes=options["dynamic_shapes"],
        input_names=options["input_names"],
        output_names=options["output_names"],
        external_data=False,
    )
    return onnx.load(path)


def wrong_tanh(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """Every Tanh becomes a Sigmoid."""
    model = _exported(module, args, kwargs, path, opset_version, **options)
    for node in model.graph.node:
        if node.op_type == "Tanh":
            node.op_type = "Sigmoid"
    onnx.save(model, path)


class _FiveTimes(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any) -> Any:
        given = self.module(*args)
        return {name: value * 5.0 for name, value in given.items()} if isinstance(given, dict) else given * 5.0


def five_times(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """Every output is five times too large; a model that gives neither one tensor nor a dict is refused."""
    export(_FiveTimes(module), args, path, kwargs=kwargs, opset_version=opset_version, external_data=False)


def _after_outputs(model: onnx.ModelProto, index: int, operator: str, *inputs: str) -> None:
    """Puts a node between an output and what made it."""
    name = model.graph.output[index].name
    for node in model.graph.node:
        for place, output in enumerate(node.output):
            if output == name:
                node.output[place] = f"{name}_before"
        for place, one in enumerate(node.input):
            if one == name:
                node.input[place] = f"{name}_before"
    model.graph.node.append(onnx.helper.make_node(operator, [f"{name}_before", *inputs], [name], name="planted"))


def three_percent(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """The first output is 3 % too large."""
    model = _exported(module, args, kwargs, path, opset_version, **options)
    model.graph.initializer.append(onnx.helper.make_tensor("factor", onnx.TensorProto.FLOAT, [], [1.03]))
    _after_outputs(model, 0, "Mul", "factor")
    onnx.save(model, path)


def not_a_number(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """The first output is NaN everywhere."""
    model = _exported(module, args, kwargs, path, opset_version, **options)
    model.graph.initializer.append(onnx.helper.make_tensor("nan", onnx.TensorProto.FLOAT, [], [float("nan")]))
    _after_outputs(model, 0, "Mul", "nan")
    onnx.save(model, path)


def swapped(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """The first two outputs change places."""
    model = _exported(module, args, kwargs, path, opset_version, **options)
    first, second = model.graph.output[0], model.graph.output[1]
    copies = [onnx.ValueInfoProto(), onnx.ValueInfoProto()]
    copies[0].CopyFrom(second)
    copies[1].CopyFrom(first)
    del model.graph.output[:2]
    rest = list(model.graph.output)
    del model.graph.output[:]
    model.graph.output.extend([*copies, *rest])
    onnx.save(model, path)


def one_missing(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """The last output is left out."""
    model = _exported(module, args, kwargs, path, opset_version, **options)
    del model.graph.output[-1]
    onnx.save(model, path)


def too_wide(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """The first output is float64."""
    model = _exported(module, args, kwargs, path, opset_version, **options)
    _after_outputs(model, 0, "Cast")
    model.graph.node[-1].attribute.append(onnx.helper.make_attribute("to", onnx.TensorProto.DOUBLE))
    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    onnx.save(model, path)


def crashing(module: Any, args: Any, kwargs: Any, *, path: Path, **options: Any) -> None:
    """Ends the process where the program has a tanh, as a broken library of custom operators would."""
    import torch

    program = torch.export.export(module, args, kwargs)
    if any(str(node.target) == "aten.tanh.default" for node in program.graph.nodes):
        os.kill(os.getpid(), 11)
    _exported(module, args, kwargs, path, **options)


def crashing_at_a_class(module: Any, args: Any, kwargs: Any, *, path: Path, **options: Any) -> None:
    """Ends the process at a class of the model, which an exported program no longer has."""
    if any(type(part).__name__ == "Fragile" for part in module.modules()):
        os.kill(os.getpid(), 11)
    _exported(module, args, kwargs, path, **options)


def endless(module: Any, args: Any, kwargs: Any, *, path: Path, **options: Any) -> None:
    """Never comes back."""
    time.sleep(3600)


def leaving(module: Any, args: Any, kwargs: Any, *, path: Path, **options: Any) -> None:
    """Ends the process without a word."""
    os._exit(3)


def one_more(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """One output more than the model has."""
    model = _exported(module, args, kwargs, path, opset_version, **options)
    model.graph.node.append(onnx.helper.make_node("Identity", [model.graph.output[0].name], ["more"]))
    model.graph.output.add().CopyFrom(model.graph.output[0])
    model.graph.output[-1].name = "more"
    onnx.save(model, path)


def hungry(module: Any, args: Any, kwargs: Any, *, path: Path, **options: Any) -> None:
    """Takes 600 MB where the module has a tanh, and keeps them."""
    import torch

    program = torch.export.export(module, args, kwargs)
    if any(str(node.target) == "aten.tanh.default" for node in program.graph.nodes):
        hoard = b"x" * (600 << 20)
        time.sleep(60)
        del hoard
    _exported(module, args, kwargs, path, **options)


def unknown_tanh(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """Every Tanh becomes an operator that no runtime has."""
    model = _exported(module, args, kwargs, path, opset_version, **options)
    for node in model.graph.node:
        if node.op_type == "Tanh":
            node.op_type = "NoSuchTanh"
    onnx.save(model, path)
