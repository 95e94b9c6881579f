"""Factors behind a product with weights are in the weights of a file; what that would change stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from exporting import assert_same, eager
from torch import Tensor, nn

from batch_export import export

Form = Callable[["Scaled", Tensor], Tensor]
NUMBERS = torch.tensor([0.0, -0.0, 1.0, -2.5, 1e-20, 1e20, float("nan"), 3.0])


class Scaled(nn.Module):
    """Layers and factors, put together as a form says."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.form = form
        self.linear, self.bare, self.narrow = nn.Linear(8, 6), nn.Linear(8, 6, bias=False), nn.Linear(8, 1)
        self.conv, self.deconv = nn.Conv2d(2, 6, 1), nn.ConvTranspose2d(2, 6, 2, groups=2, bias=False)
        self.norm = nn.BatchNorm1d(6)
        assert self.norm.running_mean is not None
        assert self.norm.running_var is not None
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2.0)
        self.scale, self.image, self.table = (nn.Parameter(torch.randn(shape)) for shape in ((6,), (6, 1, 1), (4, 6)))
        self.tiny = nn.Parameter(torch.full((6,), 1e-42))

    def forward(self, x: Tensor) -> Tensor:
        """Whatever the form says of `float[batch, 4, 8]`."""
        return self.form(self, x)


def pictures(x: Tensor) -> Tensor:
    return x.reshape(-1, 2, 4, 4)


MERGED: dict[str, tuple[Form, dict[str, int]]] = {
    "layer scale": (lambda m, x: m.scale * m.linear(x), {"MatMul": 1, "Add": 1}),
    "without a bias": (lambda m, x: m.bare(x) * m.scale, {"MatMul": 1}),
    "of rows": (lambda m, x: m.linear(x[:, 0]) * m.scale, {"Gather": 1, "Gemm": 1}),
    "of an image": (lambda m, x: m.conv(pictures(x)) * m.image, {"Reshape": 1, "Conv": 1}),
    "of groups": (lambda m, x: m.image * m.deconv(pictures(x)), {"Reshape": 1, "ConvTranspose": 1}),
    "a norm of rows": (lambda m, x: m.norm(m.linear(x).flatten(0, 1)), {"MatMul": 1, "Add": 1, "Reshape": 1}),
    "a norm of rows without a bias": (
        lambda m, x: m.norm(m.bare(x).flatten(0, 1)),
        {"MatMul": 1, "Add": 1, "Reshape": 1},
    ),
}
LEFT: dict[str, tuple[Form, str]] = {
    "a number": (lambda m, x: m.linear(x) * 0.3, "Mul"),
    "a quotient": (lambda m, x: m.linear(x) / 3.7, "Div"),
    "a table": (lambda m, x: m.linear(x) * m.table, "Mul"),
    "more channels than the weight has": (lambda m, x: m.narrow(x) * m.scale, "Mul"),
    "read by others": (lambda m, x: (y := m.linear(x)) * m.scale + torch.sin(y), "Mul"),
    "another axis": (lambda m, x: m.linear(x).transpose(1, 2) * m.table[:, 0], "Mul"),
    "too small for the dtype": (lambda m, x: m.bare(x) * m.tiny, "Mul"),
    "a weight that others use": (lambda m, x: m.bare(x) * m.scale + m.bare(x + 1), "Mul"),
    "divided by what is computed": (lambda m, x: m.scale / m.linear(x), "Div"),
}


def written(form: Form, folder: Path) -> tuple[Scaled, onnx.ModelProto]:
    """The module and its file, for any batch."""
    module = Scaled(form).eval()
    program = export(module, (torch.randn(2, 4, 8),), folder / "model.onnx", dynamic_shapes=({0: "batch"},))
    program.release()
    return module, onnx.load(folder / "model.onnx")


def assert_runs(module: Scaled, model: onnx.ModelProto) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    torch.manual_seed(4)
    special = NUMBERS[torch.randint(len(NUMBERS), (3, 4, 8))]
    for x in (torch.randn(2, 4, 8), torch.randn(1, 4, 8), torch.zeros(0, 4, 8), special):
        assert_same([torch.from_numpy(session.run(None, {"x": x.numpy()})[0])], eager(module, (x,)))


@pytest.mark.parametrize("name", MERGED)
def test_a_factor_is_in_the_weights(name: str, tmp_path: Path) -> None:
    form, expected = MERGED[name]
    module, model = written(form, tmp_path)
    onnx.checker.check_model(model, full_check=True)
    found = Counter("Reshape" if node.op_type == "Flatten" else node.op_type for node in model.graph.node)
    assert found == Counter(expected)
    assert_runs(module, model)


@pytest.mark.parametrize("name", LEFT)
def test_a_factor_that_is_not_the_weights_alone_stays(name: str, tmp_path: Path) -> None:
    form, kept = LEFT[name]
    module, model = written(form, tmp_path)
    assert kept in {node.op_type for node in model.graph.node}
    assert_runs(module, model)
