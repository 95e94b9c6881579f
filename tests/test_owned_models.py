"""Models that a program has for itself: a file is made of them without a copy, and they are there when asked for."""

from __future__ import annotations

import copy
from pathlib import Path

import onnx_ir as ir
import pytest
import torch

from batch_export.exporter import export
from batch_export.exporter.graph import copies
from batch_export.exporter.graph.kept_models import KeptModel
from batch_export.exporter.optimise import weight_folding
from batch_export.exporter.program.program import ONNXProgram

X = torch.linspace(-1, 1, 32).reshape(1, 2, 4, 4)


def module() -> torch.nn.Module:
    """Of which a file folds: a norm into a convolution, a transposed weight, a product with ones."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3),
        torch.nn.BatchNorm2d(3),
        torch.nn.Flatten(),
        torch.nn.Linear(12, 4, bias=False),
        torch.nn.LayerNorm(4),
    ).eval()


def text_of(model: ir.Model) -> bytes:
    return ir.to_proto(model).SerializeToString(deterministic=True)


def described(program: ONNXProgram) -> list[tuple[str | None, object, dict[str, object]]]:
    values = [
        *program.model.graph.initializers.values(),
        *(one for node in program.model.graph for one in node.outputs),
    ]
    return [(value.name, value.const_value is None, dict(value.meta)) for value in values]


def test_a_file_is_made_of_the_model_itself_and_the_model_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    untouched = export(module(), (X,))
    before, facts = text_of(untouched.model), described(untouched)
    untouched.save(tmp_path / "copied.onnx")
    monkeypatch.setattr(weight_folding, "model_like", None)  # no copy is made
    program = export(module(), (X,), tmp_path / "model.onnx", external_data=False)
    assert (tmp_path / "model.onnx").read_bytes() == (tmp_path / "copied.onnx").read_bytes()
    program.save(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "copied.onnx").read_bytes()
    assert text_of(program.model) == before
    assert described(program) == facts


def test_what_a_caller_has_is_never_changed(tmp_path: Path) -> None:
    program = export(module(), (X,), tmp_path / "model.onnx")
    model = program.model
    before, nodes = text_of(model), list(model.graph)
    program.save(tmp_path / "again.onnx")
    assert program.model is model
    assert list(model.graph) == nodes
    assert text_of(model) == before


def test_copies_of_a_program_share_a_model_that_stays(tmp_path: Path) -> None:
    program = export(module(), (X,))
    other = copy.copy(program)
    before = text_of(export(module(), (X,)).model)
    program.save(tmp_path / "model.onnx")
    assert text_of(other.model) == before
    assert other.model is program.model


def test_models_with_bodies_are_copied_by_onnx_ir() -> None:
    class Chosen(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    assert KeptModel.of(export(Chosen(), (X,)).model) is None


def test_a_model_is_made_again_with_all_that_passes_noted() -> None:
    model = export(module(), (X,)).model
    node, value = model.graph[0], model.graph[0].outputs[0]
    node.meta["one"], value.meta["two"], model.graph.meta["three"] = 1, 2, 3
    value.meta.invalidate("two")
    node.doc_string, value.doc_string, model.graph.doc_string = "a node", "a value", "a graph"
    kept = KeptModel.of(model)
    assert kept is not None
    before = text_of(model)
    node.name, value.name, node.op_type = "other", "another", "Other"
    node.attributes.clear()
    node.metadata_props.clear()
    value.metadata_props["new"] = "one"
    made = kept.made()
    assert text_of(made) == before
    assert made.graph[0].meta == {"one": 1}
    assert made.graph[0].outputs[0].meta == {"two": 2}
    assert not made.graph[0].outputs[0].meta.is_valid("two")
    assert made.graph.meta == {"three": 3}
    assert copies.is_plain(made)
