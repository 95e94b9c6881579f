"""Further opsets of one capture: what translates alike is translated once, and files are those of separate exports."""

from __future__ import annotations

import copy
from collections.abc import Callable

import onnx_ir as ir
import pytest
import torch
from torch import nn

from batch_export.exporter.api import export, to_onnx
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.program import prepared
from batch_export.exporter.program.program import ONNXProgram
from batch_export.exporter.translate.registry import OnnxRegistry

X = torch.linspace(-1, 1, 48).reshape(2, 2, 3, 4)


class Attending(nn.Module):
    """GELU is an operator from opset 20 on; attention is from 23 on, but not taken by itself with these sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.scaled_dot_product_attention(x, self.linear(x), x)
        return nn.functional.gelu(y) + torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


class Normalising(nn.Module):
    """Group normalisation is an operator from opset 21 on, which is never taken by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class Native(nn.Module):
    """Names an operator of opset 23."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x[:, 0, :, :2]
        return torch.onnx.ops.rotary_embedding(x, half.cos(), half.sin())


def captured(model: nn.Module) -> Captured:
    torch.manual_seed(0)
    return capture(model.eval(), (X,), dynamic_shapes=({0: "batch"},))


def written(program: ONNXProgram) -> bytes:
    return ir.to_proto(program.model).SerializeToString(deterministic=True)


@pytest.fixture
def translations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The opsets at which a program was translated."""
    found: list[int] = []
    translate: Callable[..., object] = prepared.translate_program

    def noted(program: object, registry: OnnxRegistry, *args: object, **kwargs: object) -> object:
        found.append(registry.opset_version)
        return translate(program, registry, *args, **kwargs)

    monkeypatch.setattr(prepared, "translate_program", noted)
    return found


@pytest.mark.parametrize(
    ("model", "again"),
    [(Attending(), [21, 18]), (Native(), [21, 24]), (nn.Linear(4, 4), [21]), (Normalising(), [21])],
)
def test_files_are_those_of_separate_exports(model: nn.Module, again: list[int], translations: list[int]) -> None:
    shared = captured(model)
    opsets = (21, 18, 24, 13, 20, 22, 23, 21)
    files = [written(to_onnx(shared, opset)) for opset in opsets]
    assert translations == again
    assert files == [written(to_onnx(shared, opset, reusable=False)) for opset in opsets]


def test_what_is_done_to_one_program_is_not_done_to_the_next() -> None:
    model = Attending()
    shared = captured(model)
    before = written(to_onnx(shared, 20, reusable=False))
    program = to_onnx(shared, 20, input_names=["given"], output_names=["gives"])
    other = copy.deepcopy(model)
    nn.init.ones_(other.linear.weight)
    program.apply_weights(other)
    program.rename_axes({"batch": "rows"})
    for node in program.model.graph:
        node.metadata_props.clear()
    assert written(to_onnx(shared, 20)) == before


def test_options_and_what_a_caller_brings_are_translated_anew(translations: list[int]) -> None:
    shared = captured(Attending())
    plain = to_onnx(shared, 23)
    assert "Attention" not in {node.op_type for node in plain.model.graph}
    always = to_onnx(shared, 23, prefer_native="always")
    assert "Attention" in {node.op_type for node in always.model.graph}
    table = {torch.ops.aten.gelu.default: lambda x, approximate="none": nn_relu(x)}
    own = to_onnx(shared, 23, custom_translation_table=table)
    assert "Gelu" not in {node.op_type for node in own.model.graph}
    to_onnx(shared, 23, optimize=False)
    to_onnx(shared, 23)
    assert len(translations) == 4
    export(Attending().eval(), (X,))
    assert len(translations) == 5


def nn_relu(x: ir.Value) -> ir.Value:
    from onnxscript import opset18 as op  # lazy: named as translations name it

    return op.Relu(x)
