"""The stages after translation: decomposition, optimiser, opset, weights, fingerprints; on the zoo's small models."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
import yaml
from exporting import assert_same, eager, export_and_compare
from torch import nn
from torch.utils import _pytree as pytree

from batch_export import axes
from batch_export.config import model as model_config
from batch_export.errors import OpsetError
from batch_export.exporter import export, to_onnx
from batch_export.exporter.capture import fingerprint
from batch_export.exporter.capture.capture import Captured, capture
from batch_export.exporter.graph import weights
from batch_export.exporter.graph.opsets import HIGHEST_OPSET, LOWEST_OPSET
from batch_export.exporter.optimise import rewrite_rules
from batch_export.exporter.translate import decompose
from batch_export.exporter.translate.registry import OnnxRegistry
from batch_export.legalise.versions import ir_version_for
from batch_export.stages import model as model_room

pytestmark = pytest.mark.sampled

CONFIGS = Path(__file__).parent.parent / "conf" / "model"
LARGE = {"bert_base", "resnet50", "minilm"}
TINY = sorted(path.stem for path in CONFIGS.glob("*.yaml") if path.stem not in LARGE)
RELATIVES = {
    "albert", "bert_padded", "bert_tiny", "clip", "diffusion_unet", "distilbert", "electra", "llama", "llama_cache",
    "mpnet", "qwen2", "swin", "t5", "transformer_encoder", "wav2vec2",
}  # fmt: skip
"""Left to the nox session `ops`; what they decompose, a relative of theirs decomposes in every run."""


def zoo_model(name: str) -> tuple[Any, nn.Module, dict[str, Any]]:
    spec = model_config.model_spec(name, yaml.safe_load((CONFIGS / f"{name}.yaml").read_text()))
    return spec, model_room.build(spec), model_room.example_inputs(spec, axes.example_sizes(spec))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.ops if name in RELATIVES else ()) for name in TINY]
)
def test_node_local_decomposition_computes_what_run_decompositions_computes(name: str) -> None:
    """The same program through both ways, run in ONNX Runtime on the same inputs; captured with a free batch."""
    spec, module, inputs = zoo_model(name)
    setting = "batch" if axes.supports(spec, "batch") is None else "static"
    captured = capture(module, (), inputs, dynamic_shapes=model_room.dynamic_shapes(spec, setting))
    local = to_onnx(captured, 20)
    registry = OnnxRegistry(20)
    table = {
        target: function
        for target, function in decompose.decompositions().items()
        if registry.lookup(target) is None and isinstance(target, torch._ops.OpOverload)
    }
    whole = Captured(captured.program.run_decompositions(table), captured.axis_names)
    other = to_onnx(whole, 20)
    for sizes in [axes.example_sizes(spec), *axes.check_sizes(spec, setting)]:
        given = model_room.example_inputs(spec, sizes)
        assert_same(local(**given), other(**given), 1e-4)
    local.release()
    other.release()


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 32), nn.Linear(32, 16)
        self.tied = self.two.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.one(x)).transpose(1, 2).transpose(1, 2)
        return self.two(hidden) + (x @ self.tied) @ self.two.weight.t() + (x + 0.0) * 1.0


X = torch.linspace(-1, 1, 96).reshape(2, 3, 16)


@pytest.mark.parametrize("opset", range(LOWEST_OPSET, HIGHEST_OPSET + 1))
def test_the_file_has_exactly_the_opset_asked_for(opset: int) -> None:
    program = export_and_compare(Mlp(), (X,), opset_version=opset)
    assert program.model_proto.opset_import[0].version == opset
    assert program.model.ir_version == ir_version_for(opset)


@pytest.mark.parametrize("opset", [LOWEST_OPSET - 1, HIGHEST_OPSET + 1, 0, "20"])
def test_another_opset_is_refused_and_the_range_named(opset: Any) -> None:
    with pytest.raises(OpsetError, match=f"from {LOWEST_OPSET} to {HIGHEST_OPSET}"):
        export(Mlp().eval(), (X,), opset_version=opset)


def test_operators_that_changed_are_converted() -> None:
    class Sampler(nn.Module):
        def forward(self, x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
            return nn.functional.grid_sample(x, grid, mode="bilinear", align_corners=False)

    args = (torch.randn(1, 2, 5, 5), torch.rand(1, 3, 3, 2) - 0.5)
    for opset in (18, 20, 23):
        export_and_compare(Sampler(), args, opset_version=opset)


def test_the_optimiser_acts_says_so_and_keeps_results_and_parameters() -> None:
    module = Mlp().eval()
    plain = export(module, (X,), optimize=False)
    program = export(module, (X,))
    assert len(list(program.model.graph)) < len(list(plain.model.graph))
    assert any(one.changes and one.nodes_after < one.nodes_before for one in program.passes)
    assert_same(program(X), plain(X), 1e-5)
    initializers = program.model.graph.initializers
    raws = [value.const_value.raw for value in initializers.values() if hasattr(value.const_value, "raw")]
    assert any(raw is module.one.weight for raw in raws)
    assert any(raw is module.two.weight for raw in raws)
    assert sum(1 for raw in raws if raw is module.two.weight) == 1  # tied weights are one initializer


def test_rules_are_indexed_by_the_operator_they_start_from() -> None:
    index = rewrite_rules.indexed_rules()
    assert "Reshape" in index
    assert "*" not in index
    assert all(
        str(rule._target_pattern.outputs[0].producer().op) == root for root, rules in index.items() for rule in rules
    )


def test_user_passes_run_after_ours() -> None:
    class Rename(ir.passes.InPlacePass):
        def call(self, model: ir.Model) -> ir.passes.PassResult:
            model.doc_string = "seen"
            return ir.passes.PassResult(model, True)

    program = export(Mlp().eval(), (X,), passes=[Rename()])
    assert program.model.doc_string == "seen"
    assert program.passes[-1].name == "Rename"


def test_weights_are_laid_out_once_and_aligned() -> None:
    big = torch.randn(300, 300)
    laid_out = weights.layout({"a": big, "b": big, "c": torch.ones(3), "d": torch.randn(400)})
    assert laid_out.entries["a"] == laid_out.entries["b"]
    assert "c" not in laid_out.entries
    assert laid_out.entries["d"][0] % 64 == 0
    stream = io.BytesIO()
    assert weights.write(stream, laid_out) == weights.digest(laid_out)
    assert len(stream.getvalue()) == laid_out.total
    offset, length = laid_out.entries["a"]
    assert stream.getvalue()[offset : offset + length] == big.numpy().tobytes()


def test_a_saved_model_with_external_data_passes_the_checker_and_keeps_its_parameters(tmp_path: Path) -> None:
    module = Mlp().eval()
    program = export(module, (X,), tmp_path / "m.onnx", external_data=True, fold_weights=False)
    assert (tmp_path / "m.onnx.data").exists()
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    loaded = onnx.load(str(tmp_path / "m.onnx"))
    assert {tensor.name for tensor in loaded.graph.initializer} == set(program.model.graph.initializers)
    assert program.model.graph.initializers["one.weight"].const_value.raw is module.one.weight
    assert_same(program(X), eager(module, (X,)))


_DIGEST = """
import torch
from batch_export.exporter.capture.capture import capture
from batch_export.exporter.capture.fingerprint import graph_digest
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((3, 4), {weight}))
        self.register_buffer("b", torch.full((4,), {buffer}), persistent=False)
    def forward(self, x):
        {comment}
        return {expression}
m = M().eval()
print(graph_digest(capture(m, (torch.ones(2, 4),), dynamic_shapes={shapes}).program))
"""
_BASE = {
    "weight": 0.5,
    "buffer": 1.0,
    "comment": "y = x",
    "expression": "torch.nn.functional.linear(x + self.b, self.w) * 2",
    "shapes": "None",
}


def digest(**changes: Any) -> str:
    code = _DIGEST.format(**{**_BASE, **changes})
    namespace: dict[str, Any] = {"__name__": "__main__"}  # the class's module is part of the digest
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "<digest>", "exec"), namespace)
    return output.getvalue().strip()


def test_the_graph_digest_is_the_same_in_another_process_and_after_a_comment() -> None:
    base = digest()
    code = _DIGEST.format(**_BASE)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == base
    assert digest(comment="z = x  # renamed") == base


@pytest.mark.parametrize(
    "change",
    [
        {"weight": 0.25},
        {"buffer": 2.0},
        {"expression": "torch.nn.functional.linear(x + self.b, self.w) * 3"},
        {"expression": "torch.nn.functional.linear(x - self.b, self.w) * 2"},
        {"shapes": "({0: 'batch'},)"},
    ],
    ids=["weight", "non-persistent buffer", "scalar", "operator", "dynamic axis"],
)
def test_whatever_changes_the_program_changes_the_digest(change: dict[str, Any]) -> None:
    assert digest(**change) != digest()


def test_a_digest_over_stored_weights_still_sees_small_tensors() -> None:
    captured = capture(Mlp().eval(), (X,))
    laid_out = weights.layout(fingerprint.program_tensors(captured.program))
    known = weights.digest(laid_out)
    first = fingerprint.graph_digest(captured.program, known)
    with torch.no_grad():
        captured.program.state_dict["one.bias"].add_(1)
    assert fingerprint.graph_digest(captured.program, known) != first


def test_the_tree_of_inputs_is_flattened_in_the_order_of_forward() -> None:
    class Nested(nn.Module):
        def forward(self, a: torch.Tensor, b: dict[str, torch.Tensor], c: list[torch.Tensor]) -> torch.Tensor:
            return a + b["k"] * 2 + c[0] * 3

    inputs = {"c": [torch.full((2,), 5.0)], "b": {"k": torch.full((2,), 3.0)}, "a": torch.ones(2)}
    program = export(Nested().eval(), (), kwargs=inputs)
    expected = [tensor for tensor in pytree.tree_leaves(Nested()(**inputs))]
    assert_same(program(**inputs), expected)
    assert_same(program(inputs["a"], inputs["b"], inputs["c"]), expected)
