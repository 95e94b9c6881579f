"""Repeated blocks in files: one block is translated and optimised, and the file is that of translating each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rarer import first
from test_exporter_blocks import DEPTH, SHARED, Layer, Stack, X, layers, stamped
from torch import nn

from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture import block_expansion
from batch_export.exporter.capture.block_recording import NotSharedError
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.captured import Captured
from batch_export.exporter.graph import block_bodies
from batch_export.exporter.program.program import ONNXProgram
from batch_export.exporter.translate.program import translate_program
from batch_export.exporter.translate.registry import OnnxRegistry

pytestmark = pytest.mark.sampled

OTHER = torch.linspace(-2, 3, 60).reshape(5, 3, 4)


class Turning(Layer):
    """Begins and ends with a transposition: those of two neighbours undo each other."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.transpose(0, 2).contiguous().transpose(0, 2)).transpose(1, 2).transpose(2, 1)


class Mixing(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (super().forward(x) + 1).flatten(1).unflatten(1, (3, 4)) * torch.tensor([1.0, 2.0, 3.0, 4.0])


class Shifted(Layer):
    def forward(self, x: torch.Tensor, by: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(x) + (0 if by is None else by)


class Shifting(Stack):
    """Every layer is given a constant of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at, layer in enumerate(self.layers):
            x = layer(x, torch.full((4,), float(at)) * 2)
        return x


class Overwriting(Stack):
    """What a layer gave, and what it was given, is written to between the layers."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = x.clone()
        for layer in self.layers:
            view = kept.view(-1)
            y = layer(kept)
            y.add_(1)
            view[0] = 3.0
            kept = kept + y
        return kept, y


FILES: dict[str, Callable[[], nn.Module]] = {
    **{name: make for name, (make, _) in SHARED.items()},
    "forms that two blocks make together": lambda: Stack(*layers(Turning)),
    "constants in a block": lambda: Stack(*layers(Mixing)),
    "constants that a block is given": lambda: Shifting(*layers(Shifted)),
    "writes between the blocks": lambda: Overwriting(*layers(Layer)),
}


def both(make: Callable[[], nn.Module]) -> tuple[Captured, Captured]:
    torch.manual_seed(0)
    model = make().eval()
    found = [
        capture(model, (X.clone(),), dynamic_shapes=({0: "batch"},), guards="allow", capture_blocks=blocks)
        for blocks in (True, False)
    ]
    return found[0], found[1]


def operators(program: ONNXProgram) -> Counter[str]:
    return Counter(node.op_type for node in program.model.graph.all_nodes())


@pytest.mark.parametrize("optimize", first(1, [True, False]))
@pytest.mark.parametrize("case", first(9, FILES))
def test_the_file_is_that_of_translating_each(case: str, optimize: bool) -> None:
    shared, plain = both(FILES[case])
    assert stamped(shared.blocks)
    one, other = (to_onnx(captured, 20, optimize=optimize) for captured in (shared, plain))
    assert operators(one) == operators(other)
    assert not any(node.domain == block_bodies.DOMAIN for node in one.model.graph)
    for mine, its in zip(one(OTHER), other(OTHER), strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=0)


def bodies(captured: Captured) -> list[block_bodies.Body]:
    return translate_program(captured.traced, OnnxRegistry().at(20), captured.axis_names).bodies


def test_one_block_is_translated_for_all() -> None:
    shared, _ = both(SHARED["alike"][0])
    (body,) = bodies(shared)
    assert [site.path for site in body.calls.values()] == ["layers.2", "layers.3", "layers.4"]
    assert len(body.model.graph) == len(
        [node for node in body.model.graph if "layers.1" in node.metadata_props["namespace"]]
    )


def test_a_constant_of_its_own_is_translated_for_every_block() -> None:
    shared, _ = both(FILES["constants that a block is given"])
    assert not any(body.calls for body in bodies(shared))


def test_nodes_and_values_say_where_they_are() -> None:
    shared, plain = both(SHARED["alike"][0])
    one, other = (to_onnx(captured, 20) for captured in (shared, plain))
    theirs = {node.outputs[0].name: node.metadata_props for node in other.model.graph}
    named = [node for node in one.model.graph if node.outputs[0].name in theirs]
    assert len({node.metadata_props["namespace"] for node in named}) >= 2 * DEPTH
    for node in named:
        assert node.metadata_props["namespace"] == theirs[node.outputs[0].name]["namespace"]
    names = {node.name for node in one.exported_program.graph.nodes}
    assert {"linear_4", "relu_4"} <= names & {node.outputs[0].name for node in one.model.graph}


def test_other_weights_reach_every_block() -> None:
    shared, _ = both(SHARED["alike"][0])
    program = to_onnx(shared, 20)
    other = Stack(*layers(Layer)).eval()
    with torch.no_grad():
        for weight in other.parameters():
            weight.copy_(torch.rand_like(weight))
    program.apply_weights(other.state_dict())
    torch.testing.assert_close(program(OTHER)[0], other(OTHER))


def test_a_program_runs_before_its_blocks_are_written_out() -> None:
    model = Stack(*layers(Layer)).eval()
    captured = capture(model, (X,))
    assert block_expansion.sources(captured.traced)
    torch.testing.assert_close(captured.traced.module()(X), model(X))


def test_nodes_that_torch_changed_are_written_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*arguments: Any) -> None:
        raise NotSharedError("its nodes are others after the capture")

    monkeypatch.setattr(block_expansion, "_source", changed)
    captured = capture(Stack(*layers(Layer)), (X,))
    assert not block_expansion.sources(captured.traced)
    assert stamped(captured.blocks) == DEPTH - 2
    assert captured.attempts[0].error == ""
