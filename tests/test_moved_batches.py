"""What a Transpose moves goes into a product with float16 weights through a node that onnxruntime does not fuse."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from torch import nn

from batch_export.exporter.optimise.opset import set_opset
from batch_export.legalise import moved_batches
from tests.exporting import export_and_compare

W = np.arange(1, 9).reshape(4, 2)
V = np.arange(1, 13).reshape(3, 4)


def model(body: str, dtype: str = "float16") -> ir.Model:
    signature = f"g ({dtype}[B, 3, 4] x) => ({dtype}[K, L, M] y) <{dtype}[4, 2] w, {dtype}[3, 4] v>"
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {signature} {{{body}}}')
    kind = np.float16 if dtype == "float16" else np.float32
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(x.astype(kind), n) for x, n in ((W, "w"), (V, "v")))
    return ir.serde.deserialize_model(proto)


@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose<perm=[1, 0, 2]>(x)  y = MatMul(t, w)",
        "u = Transpose<perm=[1, 2, 0]>(x)  y = MatMul(v, u)",
        "t = Transpose<perm=[1, 0, 2]>(x)  f = Cast<to=1>(t)  g = Cast<to=1>(w)  h = MatMul(f, g)  y = Cast<to=10>(h)",
    ],
)
@pytest.mark.parametrize("opset", [13, 18, 23])
def test_a_moved_batch_is_kept_apart_and_the_file_loads(body: str, opset: int) -> None:
    made = model(body)
    set_opset(made, opset)
    assert "Concat" in [node.op_type for node in made.graph]
    session = onnxruntime.InferenceSession(ir.serde.serialize_model(made).SerializeToString())
    x = np.arange(24, dtype=np.float16).reshape(2, 3, 4)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, V @ x.transpose(1, 2, 0) if "v, u" in body else x.transpose(1, 0, 2) @ W)


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        ("t = Transpose<perm=[1, 0, 2]>(x)  y = MatMul(t, w)", "float"),
        ("t = Transpose<perm=[0, 1, 2]>(x)  y = MatMul(t, w)", "float16"),
        ("t = Transpose<perm=[1, 0, 2]>(x)  u = Transpose<perm=[1, 2, 0]>(x)  y = MatMul(t, u)", "float16"),
    ],
)
def test_anything_else_stays_as_it_is(body: str, dtype: str) -> None:
    assert moved_batches.keep_apart(model(body, dtype)) == 0


def test_layers_behind_a_transpose_in_half_precision() -> None:
    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.transpose(0, 1))

    inputs = [(torch.randn(*sizes, 4).half(),) for sizes in ((2, 3), (1, 1), (7, 2))]
    export_and_compare(Swapped().half(), *inputs, dynamic_shapes=({0: "batch", 1: "length"},), tolerance=1e-2)
