"""Values that constant numbers scale twice load at every level of onnxruntime's optimisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from batch_export import export
from batch_export.exporter.optimise.opset import set_opset
from batch_export.legalise import scaled_twice

LEVELS = (
    onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
)


def model(body: str) -> ir.Model:
    numbers = "float a = {3}, float b = {0.5}"
    proto = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 18]> g (float[2, 2] x) => (float[2, 2] y) <{numbers}> {{{body}}}'
    )
    return ir.serde.deserialize_model(proto)


def at_each_level(proto: onnx.ModelProto, x: Any) -> list[Any]:
    results: list[Any] = []
    for level in LEVELS:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
        results += session.run(None, {session.get_inputs()[0].name: x})
    return results


@pytest.mark.parametrize(
    "body",
    [
        "m = Mul(x, a)  n = Mul(m, b)  p = MatMul(n, m)  y = MatMul(p, m)",
        "m = Div(x, a)  n = Mul(b, m)  p = MatMul(n, x)  y = MatMul(p, m)",
        "m = Mul(x, a)  n = Mul(m, b)  t = Transpose(m)  p = MatMul(n, t)  s = Softmax(p)  y = MatMul(s, m)",
        "m = Mul(x, a)  n = Mul(m, b)  p = MatMul(n, m)  q = MatMul(m, p)  y = MatMul(m, q)",
    ],
)
def test_two_factors_in_front_of_products(body: str) -> None:
    made = model(body)
    set_opset(made, 18)
    assert [node.op_type for node in made.graph].count("Concat") == 1
    x = np.array([[1, 2], [-1, 0.5]], np.float32)
    first, *others = at_each_level(ir.serde.serialize_model(made), x)
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "m = Mul(x, a)  n = Mul(m, x)  p = MatMul(n, m)  y = MatMul(p, m)",
        "m = Mul(x, a)  n = Mul(m, b)  y = MatMul(n, x)",
        "m = Mul(x, a)  p = MatMul(m, m)  y = Mul(p, b)",
    ],
)
def test_anything_else_stays_as_it_is(body: str) -> None:
    assert scaled_twice.keep_apart(model(body)) == 0


class Attended(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        v = x * 0.75
        return functional.scaled_dot_product_attention(v, v, v, attn_mask=v @ v.mT > 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_among_scaled_values(dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, 4, dtype=dtype)
    program = export(Attended(), (x,))
    for result in at_each_level(program.model_proto, x.numpy()):
        torch.testing.assert_close(torch.from_numpy(result), Attended()(x))
