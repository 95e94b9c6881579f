"""Gelu by a hyperbolic tangent, written out in a model, is one operator of a file; what only looks like it stays."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from exporting import Called
from torch import Tensor

from batch_export import export

Form = Callable[[Tensor], Tensor]
ROOT = math.sqrt(2.0 / math.pi)
FORMS: dict[str, Form] = {
    "with a power": lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * torch.pow(x, 3.0)))),
    "with products": lambda x: 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x))),
    "in another order": lambda x: (1 + torch.tanh((0.044715 * x**3 + x) * ROOT)) * (x * 0.5),
}
LIKE: dict[str, Form] = {
    "another factor": lambda x: 0.5 * x * (1.0 + torch.tanh(0.8 * (x + 0.044715 * x**3))),
    "another power": lambda x: 0.5 * x * (1.0 + torch.tanh(ROOT * (x + 0.044715 * x**2))),
    "another value": lambda x: 0.5 * x.sin() * (1.0 + torch.tanh(ROOT * (x + 0.044715 * x**3))),
    "read by others": lambda x: (t := torch.tanh(ROOT * (x + 0.044715 * x**3))) * 2 + 0.5 * x * (1.0 + t),
}
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1e-30, -3.0, 9.0, -9.0, 88.0, 1e20, -1e20, math.inf, -math.inf, math.nan, 1e-3, 2.5]


def written(form: Form, folder: Path, opset: int = 20) -> tuple[list[str], Tensor, Tensor]:
    """The operators of a file, and what eager and it give for numbers of all kinds."""
    path, x = folder / "model.onnx", torch.tensor(SPECIAL)
    export(Called(form), (torch.randn(16),), path, opset_version=opset).release()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    actual = torch.from_numpy(np.asarray(session.run(None, {"x": x.numpy()})[0]))
    return [node.op_type for node in onnx.load(path).graph.node], form(x), actual


@pytest.mark.parametrize("name", FORMS)
def test_the_formula_is_one_operator(name: str, tmp_path: Path) -> None:
    operators, expected, actual = written(FORMS[name], tmp_path)
    assert operators == ["Gelu"]
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", LIKE)
def test_what_is_another_formula_stays(name: str, tmp_path: Path) -> None:
    operators, expected, actual = written(LIKE[name], tmp_path)
    assert "Gelu" not in operators
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_below_its_opset_it_is_written_out(tmp_path: Path) -> None:
    operators, expected, actual = written(FORMS["with a power"], tmp_path, 18)
    assert "Tanh" in operators
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
