"""A matrix that is turned round and multiplied by a vector, at every level of onnxruntime's optimisation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch

from batch_export import export
from batch_export.legalise import turned_vectors
from tests.test_scaled_twice import LEVELS

MODELS: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "turned": (lambda x, v: x.t() @ v, (4, 3)),
    "square": (lambda x, v: torch.mv(x.t(), v), (4, 4)),
    "several": (lambda x, v: x.mT @ v, (2, 4, 3)),
    "of a result": (lambda x, v: (x.t() * 2) @ v + x.t().relu() @ v, (4, 3)),
    "behind others": (lambda x, v: (x.t().reshape(3, 4).softmax(1) * x.t()) @ v, (4, 3)),
    "read elsewhere": (lambda x, v: x.t() @ v + x.t().sum(1), (4, 3)),
    "in float64": (lambda x, v: x.t().double() @ v.double(), (4, 3)),
}


@pytest.mark.parametrize(("optimize", "opset"), [(True, 20), (False, 20), (True, 12), (False, 9)])
@pytest.mark.parametrize("name", MODELS)
def test_products_are_eagers_at_each_level(name: str, optimize: bool, opset: int, tmp_path: Path) -> None:
    function, shape = MODELS[name]
    inputs = (torch.randn(shape), torch.randn(4))
    export(function, inputs, tmp_path / "m.onnx", optimize=optimize, opset_version=opset)
    proto = onnx.load(tmp_path / "m.onnx")
    feeds = dict(zip((one.name for one in proto.graph.input), (one.numpy() for one in inputs), strict=True))
    onnx.checker.check_model(proto, full_check=True)
    for result in _at_each_level(proto, feeds):
        np.testing.assert_allclose(result, function(*inputs).numpy(), rtol=1e-5, atol=1e-6)


def _at_each_level(proto: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    results = []
    for level in LEVELS:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
        results.append(np.asarray(session.run(None, feeds)[0]))
    return results


def _model(body: str) -> ir.Model:
    inputs = "float[2, 3] x, float[2] v, float[2, 5] z"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g ({inputs}) => (float[3] y) {{{body}}}')
    return ir.serde.deserialize_model(proto)


def test_a_turn_that_others_read_stays() -> None:
    made = _model("t = Transpose(x)  p = MatMul(t, v)  s = ReduceSum<keepdims = 0>(t)  y = Add(p, s)")
    assert turned_vectors.put_first(made) == 1
    assert [node.op_type for node in made.graph] == ["Transpose", "MatMul", "ReduceSum", "Add"]


@pytest.mark.parametrize("body", ["t = Transpose(x)  y = MatMul(t, z)", "t = Transpose(x)  y = MatMul(v, x)"])
def test_other_products_stay(body: str) -> None:
    assert turned_vectors.put_first(_model(body)) == 0
