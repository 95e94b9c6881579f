"""Slices that are transposed alike are transposed once, before the Split; what one Transpose would not do stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
import torch
from exporting import assert_same, eager
from torch import Tensor, nn
from torch.nn import functional

from batch_export import export

pytestmark = pytest.mark.sampled

Form = Callable[[Tensor], Any]


class Sliced(nn.Module):
    """One linear layer whose rows a form takes apart."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.form, self.wide = form, nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Any:
        """Whatever the form makes of `float[batch, time, 24]`."""
        return self.form(self.wide(x))


def rotated(y: Tensor) -> Tensor:
    """Attention whose queries and keys are changed between the layer and the product."""
    q, k, v = (part.transpose(1, 2) for part in y.view(*y.shape[:2], 3, 4, 2).unbind(2))
    return functional.scaled_dot_product_attention(q * q.sin(), k * k.cos(), v).transpose(1, 2).flatten(2)


def keys_turned(y: Tensor) -> Tensor:
    q, k, v = y.view(*y.shape[:2], 3, 4, 2).unbind(2)
    return (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)).softmax(-1) @ v.transpose(1, 2)


def batch_inside(y: Tensor) -> Tensor:
    first, second = y.view(*y.shape[:2], 2, 3, 4).unbind(-3)
    return first.permute(2, 1, 0, 3) - second.permute(2, 1, 0, 3)


def of_the_last_axis(y: Tensor) -> Tensor:
    first, second = y.view(*y.shape[:2], 3, 4, 2).unbind(-1)
    return first.transpose(1, 2) - second.transpose(1, 2)


def returned(y: Tensor) -> tuple[Tensor, ...]:
    return tuple(part.transpose(1, 2) for part in y.view(*y.shape[:2], 3, 4, 2).unbind(2))


def one_way_and_another(y: Tensor) -> Tensor:
    first, second = y.view(*y.shape[:2], 2, 3, 4).unbind(2)
    return first.permute(0, 2, 1, 3).sum((1, 2)) - second.permute(1, 2, 0, 3).sum((0, 1))


def read_as_it_is(y: Tensor) -> tuple[Tensor, Tensor]:
    first, second = y.view(*y.shape[:2], 2, 3, 4).unbind(2)
    return first.transpose(1, 2) - second.transpose(1, 2), first


def of_several(y: Tensor) -> Tensor:
    first, second = y.view(*y.shape[:2], 6, 4).split(3, 2)
    return first.transpose(1, 2) - second.transpose(1, 2)


TRANSPOSES: dict[Form, tuple[int, int]] = {
    rotated: (3, 5), keys_turned: (2, 3), batch_inside: (1, 2), of_the_last_axis: (1, 2), returned: (1, 3),
    one_way_and_another: (2, 2), read_as_it_is: (2, 2), of_several: (2, 2),
}  # fmt: skip
"""Form -> how many Transposes its file has, and how many without the rewrite."""


@pytest.mark.parametrize("free", [False, True], ids=["static", "free"])
@pytest.mark.parametrize("form", TRANSPOSES, ids=lambda form: form.__name__)
def test_alike_slices_are_transposed_once(form: Form, free: bool, tmp_path: Path) -> None:
    module, path = Sliced(form).eval(), tmp_path / "model.onnx"
    axes = ({0: "batch", 1: "time"},) if free else None
    x = torch.randn(2, 3, 8)
    for folds in (False, True):
        export(module, (x,), path, dynamic_shapes=axes, fold_weights=folds).release()
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        weights = {one.name for one in model.graph.initializer}
        found = Counter(one.op_type for one in model.graph.node if one.input[0] not in weights)
        assert found["Transpose"] == TRANSPOSES[form][0 if folds else 1]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for size in ((2, 3), (1, 1), (4, 6)) if free else ((2, 3),):
        given = torch.randn(*size, 8)
        actual = [torch.from_numpy(one) for one in session.run(None, {"x": given.numpy()})]
        assert_same(actual, eager(module, (given,)), tolerance=1e-5)


@pytest.mark.parametrize("opset", [12, 13, 18, 23])
def test_at_other_opsets(opset: int, tmp_path: Path) -> None:
    module, path = Sliced(rotated).eval(), tmp_path / "model.onnx"
    x = torch.randn(2, 3, 8)
    export(module, (x,), path, opset_version=opset).release()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (actual,) = session.run(None, {"x": x.numpy()})
    assert_same([torch.from_numpy(actual)], eager(module, (x,)), tolerance=1e-5)
