"""The bytes of a file are those that onnx-ir's protobuf objects give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir import serde

from batch_export.exporter.api import export
from batch_export.exporter.graph.serialised import serialised


def _bytes(model: ir.Model) -> bytes:
    made: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return made


def _model() -> ir.Model:
    """A model with what is seldom: inputs and outputs left out, a body, sequences, unknown sizes, weights elsewhere."""
    floats, sizes = ir.TensorType(ir.DataType.FLOAT), ir.Shape([2, "n", None, ir.SymbolicDim("2*n")])
    x = ir.Value(name="x", type=floats, shape=sizes, doc_string="given")
    bare = ir.Value(name="bare")
    content = ir.tensor(np.arange(300, dtype=np.int64), name="w")
    weight = ir.Value(name="w", type=ir.TensorType(content.dtype), shape=content.shape, const_value=content)
    elsewhere = ir.ExternalTensor(
        "a.data", 1 << 20, 24, ir.DataType.FLOAT, shape=ir.Shape([2, 3]), name="e", base_dir="."
    )
    outside = ir.Value(name="e", type=floats, shape=ir.Shape([2, 3]), const_value=elsewhere)
    texts = ir.Value(name="t", const_value=ir.StringTensor([b"a", b"\xff"], shape=ir.Shape([2]), name="t"))
    weight.metadata_props.update({"b": "ü" * 200, "a": ""})
    inner = ir.node("Identity", [x], outputs=[ir.Value(name="inner", type=floats)], name="in_body")
    body = ir.Graph([], inner.outputs, nodes=[inner], name="body")
    condition = ir.Value(name="condition", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    taken = ir.node("If", [condition], {"then_branch": body, "else_branch": body}, num_outputs=1, name="if")
    taken.outputs[0].name = "taken"
    clipped = ir.node("Clip", [taken.outputs[0], None, bare], num_outputs=1, name="", doc_string="told")
    clipped.outputs[0].name, clipped.outputs[0].type = "clipped", ir.SequenceType(floats)
    clipped.metadata_props["where"] = "here"
    own = ir.node("Own", [weight, outside, texts], {"k": [1, 2], "s": "", "f": 0.5}, domain="ours", num_outputs=3)
    for value, name in zip(own.outputs, ("own", "", ""), strict=True):
        value.name = name
    graph = ir.Graph(
        [x, bare, condition, weight],
        [clipped.outputs[0], own.outputs[0]],
        nodes=[taken, clipped, own],
        initializers=[weight, outside, texts],
        opset_imports={"": 20, "ours": 1},
        name="main",
        doc_string="all of it",
    )
    graph.metadata_props["g"] = "1"
    return ir.Model(graph, ir_version=10, producer_name="us", model_version=3, metadata_props={"m": "1", "k": ""})


def test_rare_parts_are_written_as_onnx_ir_writes_them() -> None:
    model = _model()
    assert serialised(model) == _bytes(model)


@pytest.mark.parametrize("rare", ["function", "quantisation"])
def test_what_is_rarer_still_is_left_to_it(rare: str) -> None:
    model = _model()
    if rare == "function":
        made = ir.Graph([], [], nodes=[], opset_imports={"": 20})
        function = ir.Function("ours", "Own", graph=made, attributes={})
        model.functions[function.identifier()] = function
    else:
        model.graph.inputs[0].meta["quant_parameter_tensor_names"] = {"SCALE_TENSOR": "w"}
    assert serialised(model) == _bytes(model)


def test_a_value_without_a_name_is_onnx_irs_error() -> None:
    model = _model()
    model.graph.inputs[1].name = None
    with pytest.raises(serde.SerdeError):
        ir.to_proto(model)
    with pytest.raises(serde.SerdeError):
        serialised(model)


def test_files_of_repeated_layers_are_read_back_as_they_are(tmp_path: Path) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    shapes = ({0: "batch", 1: "sequence"},)
    program = export(module, (torch.ones(2, 3, 8),), tmp_path / "a.onnx", dynamic_shapes=shapes, external_data=True)
    model, _ = program.written()
    assert serialised(model) == _bytes(model)
    again = ir.load(tmp_path / "a.onnx")
    assert serialised(again) == (tmp_path / "a.onnx").read_bytes()
