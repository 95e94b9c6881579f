"""Products of float64 with a constant factor, at every level of onnxruntime's optimisation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch.nn import functional

from batch_export import export
from tests.test_scaled_twice import at_each_level

MODELS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "in front": lambda x: (x * 0.3) @ x,
    "a quotient in front": lambda x: x @ (x / 0.7),
    "a quotient by a whole number": lambda x: (x / 3) @ x,
    "behind": lambda x: (x @ x) * 0.3,
    "of a sum": lambda x: torch.addmm(x[0], x[0], x[1], beta=0.3, alpha=0.7),
    "turned": lambda x: x @ (x * 0.3).mT,
    "twice": lambda x: ((x * 0.3) @ (x * 0.3)) / 0.9,
    "of itself": lambda x: (x * 0.3) @ (x * 0.3),
    "attention": lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True),
}


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_products_are_doubles_at_each_level(name: str, optimize: bool, tmp_path: Path) -> None:
    x = torch.randn(2, 5, 5, dtype=torch.float64)
    export(MODELS[name], (x,), tmp_path / "m.onnx", optimize=optimize)
    expected = MODELS[name](x).numpy()
    for result in at_each_level(onnx.load(tmp_path / "m.onnx"), x.numpy()):
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("number", "dtype"), [(0.5, torch.float64), (0.3, torch.float32)])
def test_what_float32_holds_is_left_to_the_optimiser(number: float, dtype: Any, tmp_path: Path) -> None:
    program = export(lambda x: (x * number) @ x, (torch.randn(3, 3, dtype=dtype),))
    assert [node.op_type for node in program.model.graph] == ["Mul", "MatMul"]
