"""The bytes of files: those that onnx-ir and protobuf give, for every part of a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

from batch_export.exporter import export
from batch_export.exporter.program import file_bytes as encoding
from batch_export.exporter.program.file_bytes import file_bytes


class Choosing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (layer(x),))
        return x


def exported() -> ir.Model:
    return export(Choosing(), (torch.ones(2, 4),), dynamic_shapes=({0: "batch"},)).model


def as_it_is(model: ir.Model) -> None:
    """Nothing is changed."""


def with_texts(model: ir.Model) -> None:
    graph, node = model.graph, next(iter(model.graph))
    model.doc_string = graph.doc_string = node.doc_string = graph.inputs[0].doc_string = "été " * 100
    node.outputs[0].doc_string, node.outputs[0].metadata_props["a"] = "of a value", "b"
    model.metadata_props.update(b="2", a="1")
    graph.metadata_props.update({f"key {at}": "x" * at for at in range(300)})
    model.domain, model.model_version, node.overload = "some.domain", 2**40, "an_overload"


def without_names(model: ir.Model) -> None:
    node = next(iter(model.graph))
    node.name = model.graph.name = None


def with_values_that_are_less_known(model: ir.Model) -> None:
    for at, node in enumerate(model.graph):
        value = node.outputs[0]
        value.shape = (None, ir.Shape(["n", None, 3]), ir.Shape([]))[at % 3]
        if at % 3 == 0:
            value.type = None
    model.graph.inputs[0].type = ir.SequenceType(ir.OptionalType(ir.TensorType(ir.DataType.FLOAT)))


def with_inputs_and_outputs_left_out(model: ir.Model) -> None:
    x = model.graph.inputs[0]
    made = [ir.Value(name=name) for name in ("first", "", "third", "")]
    model.graph.append(ir.Node("other", "Custom", [None, x, None], outputs=made, version=1))
    model.graph.opset_imports["other"] = 1


def with_tensors_of_every_kind(model: ir.Model) -> None:
    contents = [
        ir.tensor(np.array(3, np.int64)),
        ir.tensor(np.zeros((0, 200), np.float16)),
        ir.tensor(["a", "ü"]),
        ir.tensor(np.arange(4, dtype=np.int32), doc_string="counted"),
        ir.ExternalTensor("weights", 8, 16, ir.DataType.FLOAT, name="outside", shape=ir.Shape([4])),
        ir.TensorProtoTensor(ir.to_proto(ir.tensor([1.5, 2.5], name="a message"))),
        ir.PackedTensor(np.array([0x21], np.uint8), ir.DataType.INT4, shape=[2]),
    ]
    for at, content in enumerate(contents):
        name = f"constant_{at}"
        kind = ir.TensorType(content.dtype)
        model.graph.initializers[name] = ir.Value(name=name, const_value=content, shape=content.shape, type=kind)  # type: ignore[arg-type]
    weight = next(iter(model.graph.initializers.values()))
    model.graph.inputs.append(weight)


CHANGES = [value for name, value in list(globals().items()) if name.startswith(("as_", "with"))]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.replace("_", " "))
def test_bytes_are_those_of_protobuf(change: Callable[[ir.Model], None], monkeypatch: pytest.MonkeyPatch) -> None:
    model = exported()
    change(model)
    expected = ir.to_proto(model).SerializeToString()
    monkeypatch.setattr(encoding, "_by_protobuf", lambda _: pytest.fail("protobuf wrote the whole model"))
    assert file_bytes(model) == expected


def with_a_quantised_value(model: ir.Model) -> None:
    model.graph.inputs[0].meta["quant_parameter_tensor_names"] = {"SCALE_TENSOR": "scale"}


def with_a_shape_and_no_type(model: ir.Model) -> None:
    next(iter(model.graph)).outputs[0].type = None


def with_a_function(model: ir.Model) -> None:
    function = ir.Function("own", "f", graph=ir.Graph([], [], nodes=[], opset_imports={"": 20}), attributes=[])
    model.functions[function.identifier()] = function


@pytest.mark.parametrize(
    "change", [with_a_quantised_value, with_a_shape_and_no_type, with_a_function], ids=lambda change: change.__name__
)
def test_what_is_rare_is_written_by_protobuf(change: Callable[[ir.Model], None]) -> None:
    model = exported()
    change(model)
    assert file_bytes(model) == ir.to_proto(model).SerializeToString()


def test_a_file_is_written_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = export(Choosing(), (torch.ones(2, 4),))
    monkeypatch.setattr(encoding, "_by_protobuf", lambda _: pytest.fail("protobuf wrote the whole model"))
    program.save(tmp_path / "model.onnx")
    model, _ = program.written()
    assert (tmp_path / "model.onnx").read_bytes() == ir.to_proto(model).SerializeToString()
