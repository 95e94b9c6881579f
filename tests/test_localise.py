"""exporter/diagnostics/localise.py: planted faults are found exactly, in few sessions, and blamed on the right one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

from batch_export.exporter.api import export
from batch_export.exporter.diagnostics import localise as localising
from batch_export.exporter.diagnostics import slices
from batch_export.exporter.diagnostics.localise import Finding, localise
from batch_export.exporter.program.program import ONNXProgram
from batch_export.runtime.kinds import Session
from batch_export.runtime.optimised_file import write_optimised
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.runtime.session import open_session

LAYERS = 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def exported(module: nn.Module, *args: torch.Tensor, **options: Any) -> ONNXProgram:
    torch.manual_seed(0)
    return export(module.eval(), args, **options)


@pytest.fixture
def tower() -> ONNXProgram:
    torch.manual_seed(0)
    return exported(Tower(), torch.randn(3, 16))


def found(program: ONNXProgram, **options: Any) -> Finding:
    finding = localise(program, **options)
    assert finding is not None
    return finding


def node_of(program: ONNXProgram, value: str) -> ir.Node:
    return next(node for node in program.model.graph if node.outputs[0].name == value)


def test_a_program_that_agrees_has_no_wrong_node(tower: ONNXProgram) -> None:
    assert localise(tower) is None


@pytest.mark.parametrize("layer", [0, 6, 11])
def test_a_replaced_node_in_a_tower_is_found_exactly(tower: ONNXProgram, layer: int) -> None:
    name = "tanh" if layer == 0 else f"tanh_{layer}"
    wrong = node_of(tower, name)
    wrong.op_type = "Sigmoid"
    finding = found(tower)
    assert (finding.value, finding.onnx_node, finding.onnx_operator) == (name, wrong.name, "Sigmoid")
    assert (finding.fx_node, finding.fx_operator, finding.module) == (name, "aten.tanh.default", f"layers.{layer}")
    assert finding.source is not None
    assert finding.source.partition(":")[0].endswith("test_localise.py")
    assert finding.blame == "translation"
    assert finding.candidates > 4 * LAYERS
    assert finding.sessions <= 4 * math.ceil(math.log(finding.candidates, 8)) + 6
    assert f"first wrong value '{name}'" in finding.sentence()


def test_three_percent_on_a_weight_are_found_where_it_is_used(tower: ONNXProgram) -> None:
    weight = tower.model.graph.initializers["layers.7.up.weight"]
    assert weight.const_value is not None
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.03), name=weight.name)
    finding = found(tower)
    assert (finding.fx_node, finding.module) == ("linear_14", "layers.7.up")
    assert finding.facts is not None
    assert finding.facts.outside > 0


def test_a_value_that_is_not_a_number_is_found(tower: ONNXProgram) -> None:
    node_of(tower, "tanh_4").op_type = "Sqrt"
    finding = found(tower)
    assert finding.fx_node == "tanh_4"
    assert "NaN or infinite" in finding.sentence()


def test_a_node_that_the_runtime_refuses_is_found(tower: ONNXProgram) -> None:
    node_of(tower, "tanh_9").op_type = "NoSuchOperator"
    finding = found(tower)
    assert finding.fx_node == "tanh_9"
    assert "NoSuchOperator" in finding.error


def test_our_optimiser_is_blamed_when_the_unoptimised_program_agrees(tower: ONNXProgram) -> None:
    x = torch.randn(3, 16)
    node_of(tower, "tanh_5").op_type = "Sigmoid"
    finding = found(tower, args=(x,), unoptimised=lambda: export(tower.exported_program, (x,), optimize=False))
    assert finding.blame == "our optimiser"
    assert finding.fx_node == "tanh_5"


def test_a_write_in_place_is_compared_as_it_was_then() -> None:
    class Writes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.sin(x)
            y.add_(1.0)
            return torch.exp(y)

    program = exported(Writes(), torch.randn(3))
    assert localise(program) is None
    node_of(program, "exp").op_type = "Abs"
    assert found(program).fx_node == "exp"


def _damage(path: Path) -> None:
    """Stands for a wrong fusion: where the Tanh of the sixth layer, or what it was fused into, becomes a Sigmoid."""
    model = onnx.load(path, load_external_data=False)
    (node,) = (node for node in model.graph.node if node.output[0] == "tanh_5")
    if node.op_type == "Tanh":
        node.op_type = "Sigmoid"
    for attribute in node.attribute:
        if attribute.name == "activation":
            attribute.s = b"Sigmoid"
    path.write_bytes(model.SerializeToString())


def test_a_wrong_fusion_of_the_runtime_is_blamed_on_its_optimiser(
    tower: ONNXProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(path: Path, provider: ProviderSpec, threads: int = 1) -> Session:
        if provider.graph_optimization != "disabled":
            _damage(path)
        return open_session(path, provider, threads)

    def written(source: Path, target: Path, provider: ProviderSpec) -> None:
        write_optimised(source, target, provider)
        _damage(target)

    monkeypatch.setattr(slices, "open_session", opened)
    monkeypatch.setattr(localising, "write_optimised", written)
    finding = found(tower)
    assert finding.blame == "onnxruntime optimiser"
    assert finding.onnx_operator == "com.microsoft::FusedGemm"
    assert finding.fx_node == "tanh_5"
    assert "graph_optimization=disabled" in finding.reason


def test_a_provider_that_is_wrong_where_the_cpu_agrees_is_blamed(
    tower: ONNXProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = localising.CPU

    def opened(path: Path, provider: ProviderSpec, threads: int = 1) -> Session:
        if provider.execution_provider == "WrongProvider":
            model = onnx.load(path, load_external_data=False)
            for node in model.graph.node:
                if node.output[0] == "tanh_8":
                    node.op_type = "Sigmoid"
            path.write_bytes(model.SerializeToString())
        return open_session(path, cpu, threads)

    monkeypatch.setattr(slices, "open_session", opened)
    finding = found(tower, provider=ProviderSpec("wrong", "onnxruntime", "WrongProvider"))
    assert (finding.blame, finding.fx_node) == ("provider", "tanh_8")
    assert finding.reason == "the same file agrees on CPUExecutionProvider"


def test_a_kernel_is_blamed_when_the_reference_evaluator_agrees(
    tower: ONNXProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(path: Path, provider: ProviderSpec, threads: int = 1) -> Session:
        if provider.kind == "onnxruntime":
            model = onnx.load(path, load_external_data=False)
            for node in model.graph.node:
                if node.output[0] == "tanh_3":
                    node.op_type = "Sigmoid"
            path.write_bytes(model.SerializeToString())
        return open_session(path, provider, threads)

    monkeypatch.setattr(slices, "open_session", opened)
    finding = found(tower)
    assert (finding.blame, finding.fx_node) == ("onnxruntime kernel", "tanh_3")
