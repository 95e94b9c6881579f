"""Sizes that torch leaves open, and sizes alone decide: padding as TensorFlow's, a slice of all elements."""

from __future__ import annotations

import math
from pathlib import Path

import onnxruntime
import pytest
import sympy
import torch
from torch.export import Dim
from torch.nn import functional
from torch.utils._sympy.functions import FloorDiv

from batch_export.exporter import export
from batch_export.exporter.capture.settled_extremes import least

N = sympy.Symbol("n", integer=True)


@pytest.mark.parametrize(
    "expression",
    [
        2 * FloorDiv(N + 1, 2) - N + 1,
        2 * FloorDiv(N + 3, 4) - FloorDiv(N + 1, 2),
        FloorDiv(N + 1, 2) + 1 - 2 * FloorDiv(N + 3, 4),
        4 * FloorDiv(N + 3, 4) - N - 3,
        N - 3 * FloorDiv(N, 3) - 2,
    ],
    ids=str,
)
def test_no_size_has_less_than_what_is_said(expression: sympy.Expr) -> None:
    found = least(expression)
    assert found is not None
    assert found <= min(expression.subs(N, n) for n in range(1, 60))
    assert found >= min(expression.subs(N, n) for n in range(1, 60)) - 1


@pytest.mark.parametrize("expression", [N - 3, FloorDiv(N, 2) - 3, 2 * FloorDiv(N, 3) - N], ids=str)
def test_nothing_is_said_of_what_sizes_decide(expression: sympy.Expr) -> None:
    assert least(expression) is None


class Same(torch.nn.Module):
    """Convolutions whose results have `ceil(n / stride)` elements."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Conv1d(1, 1, kernel, 2) for kernel in (3, 2, 5, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            length, kernel = x.shape[2], layer.kernel_size[0]
            pad = max((math.ceil(length / 2) - 1) * 2 + kernel - length, 0)
            x = layer(functional.pad(x, [pad // 2, pad - pad // 2]))
        return x


def test_padding_as_tensorflows_keeps_lengths_short(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Same().eval()
    program = export(model, (torch.randn(1, 1, 64),), tmp_path / "same.onnx", dynamic_shapes=({2: Dim.DYNAMIC},))
    assert "Max" not in str(program.exported_program)
    session = onnxruntime.InferenceSession(tmp_path / "same.onnx", providers=["CPUExecutionProvider"])
    for length in (2, 17, 31, 64, 99):
        x = torch.randn(1, 1, length)
        torch.testing.assert_close(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), model(x))


class Tail(torch.nn.Module):
    """Keeps as many elements at the end as there were before padding, which are all of those that are left."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        padded = functional.pad(x.transpose(1, 2), [3, 3])[:, :, :length]
        return padded[:, :, -length:].transpose(1, 2).view(batch, length, -1, width // 2)


def test_a_slice_of_as_many_as_there_are_is_the_whole(tmp_path: Path) -> None:
    x = torch.randn(2, 9, 4)
    export(Tail(), (x,), tmp_path / "tail.onnx", dynamic_shapes=({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},))
    session = onnxruntime.InferenceSession(tmp_path / "tail.onnx", providers=["CPUExecutionProvider"])
    for sizes in ((1, 1), (3, 2), (2, 12)):
        x = torch.randn(*sizes, 4)
        torch.testing.assert_close(torch.from_numpy(session.run(None, {"x": x.numpy()})[0]), Tail()(x))
