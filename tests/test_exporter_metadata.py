"""Metadata of nodes, values and the graph as PyTorch's documentation names them, also after optimisation."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from batch_export import export
from batch_export.exporter.api import to_onnx
from batch_export.exporter.capture.capture import STRATEGIES, capture
from batch_export.exporter.graph.metadata import node_metadata, source_location

KIND = "pkg.torch.export.graph_signature.{}Spec.kind"
PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
ORIGINAL = "pkg.torch.onnx.original_node_name"


class SimpleAdd(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.add(x, y)


class Inner(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.clamp(self.fc1(x), min=0.5))


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("hidden", torch.ones(3), persistent=False)
        self.constant = torch.arange(2000.0).reshape(1, 2000)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen.add_(1)
        return self.inner(x) + self.hidden, self.constant * 2


@pytest.fixture(scope="module")
def program() -> Any:
    return export(Outer(), (torch.ones(2, 3),), dynamic_shapes=({0: "batch"},))


def test_the_documented_example() -> None:
    (node,) = list(export(SimpleAdd(), (torch.ones(2), torch.ones(2))).model.graph)
    module = f"{__name__}.SimpleAdd"

    assert node.metadata_props["namespace"] == f"{module}/add: aten.add.Tensor"
    assert node.metadata_props["pkg.torch.onnx.class_hierarchy"] == f"['{module}', 'aten.add.Tensor']"
    assert node.metadata_props["pkg.torch.onnx.name_scopes"] == "['', 'add']"
    assert node.metadata_props["pkg.torch.onnx.fx_node"] == (
        "%add : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, %y), kwargs = {})"
    )
    trace = node.metadata_props["pkg.torch.onnx.stack_trace"]
    assert "test_exporter_metadata.py" in trace
    assert "return torch.add(x, y)" in trace


def test_every_node_says_where_it_comes_from_also_those_that_rewriting_made(program: Any) -> None:
    assert any(one.name == "rewrite" and one.changes for one in program.passes)  # Relu over Clip became one Clip
    for node in program.model.graph.all_nodes():
        assert set(node.metadata_props) >= {
            "namespace",
            "pkg.torch.onnx.class_hierarchy",
            "pkg.torch.onnx.fx_node",
            "pkg.torch.onnx.name_scopes",
            "pkg.torch.onnx.stack_trace",
        }, node.name
        classes = ast.literal_eval(node.metadata_props["pkg.torch.onnx.class_hierarchy"])
        assert classes[0] == f"{__name__}.Outer"


def test_a_file_tells_an_fx_node_once(tmp_path: Path) -> None:
    key = "pkg.torch.onnx.fx_node"
    program = export(torch.nn.GRUCell(3, 4), (torch.randn(2, 3), torch.randn(2, 4)))
    texts = [node.metadata_props[key] for node in program.model.graph]
    assert len(texts) > 5
    assert all("call_function[target=torch.ops.aten.gru_cell.default](args" in text for text in texts)
    program.save(tmp_path / "model.onnx")
    first, *others = [dict_of(node)[key] for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert first == texts[0]
    assert set(others) == {"%gru_cell"}
    program.save(tmp_path / "whole.onnx", fold_weights=False)
    assert [dict_of(node)[key] for node in onnx.load(tmp_path / "whole.onnx").graph.node] == texts


def dict_of(node: onnx.NodeProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in node.metadata_props}


def test_a_node_of_a_submodule_has_the_whole_path(program: Any) -> None:
    node = next(node for node in program.model.graph if node.op_type == "Gemm")
    assert ast.literal_eval(node.metadata_props["pkg.torch.onnx.name_scopes"])[:3] == ["", "inner", "inner.fc1"]
    assert node.metadata_props["namespace"].startswith(f"{__name__}.Outer/inner: {__name__}.Inner/inner.fc1: torch.nn")


def test_weights_say_their_kind_their_persistence_and_their_name(program: Any) -> None:
    initializers = program.model.graph.initializers
    found = {
        name: (props[KIND.format("Input")], props[PERSISTENT], props[ORIGINAL])
        for name, props in ((name, value.metadata_props) for name, value in initializers.items())
        if ORIGINAL in props
    }
    assert found["inner.fc1.weight"] == ("PARAMETER", "True", "inner.fc1.weight")
    assert found["seen"] == ("BUFFER", "True", "seen")
    assert found["hidden"] == ("BUFFER", "False", "hidden")
    assert found["constant"][0] == "CONSTANT_TENSOR"


def test_inputs_and_outputs_say_their_kind(program: Any) -> None:
    (value,) = program.model.graph.inputs
    assert value.metadata_props[KIND.format("Input")] == "USER_INPUT"
    assert value.metadata_props[ORIGINAL] == "x"
    kinds = [output.metadata_props[KIND.format("Output")] for output in program.model.graph.outputs]
    assert kinds == ["USER_OUTPUT", "USER_OUTPUT", "BUFFER_MUTATION"]
    assert program.output_kinds[-1] == ("BUFFER_MUTATION", "seen")


def test_an_input_keeps_its_original_name_when_it_is_renamed() -> None:
    program = export(SimpleAdd(), (torch.ones(2), torch.ones(2)), input_names=["left", "right"], output_names=["sum"])
    assert [value.name for value in program.model.graph.inputs] == ["left", "right"]
    assert [value.metadata_props[ORIGINAL] for value in program.model.graph.inputs] == ["x", "y"]
    (output,) = program.model.graph.outputs
    assert (output.name, output.metadata_props[ORIGINAL]) == ("sum", "add")


def test_the_graph_has_the_signature_and_the_ranges(program: Any) -> None:
    props = program.model.graph.metadata_props
    signature = props["pkg.torch.export.ExportedProgram.graph_signature"]
    assert "p_inner_fc1_weight: PARAMETER target='inner.fc1.weight'" in signature
    assert "x: USER_INPUT" in signature
    assert "add: USER_OUTPUT" in signature
    assert "batch: VR[0, int_oo]" in props["pkg.torch.export.ExportedProgram.range_constraints"]


def test_weights_are_the_modules_own_tensors_also_after_optimisation() -> None:
    model = Outer()
    program = export(model, (torch.ones(2, 3),))
    assert program.model.graph.initializers["inner.fc1.weight"].const_value.raw is model.inner.fc1.weight
    program.optimize()
    assert program.model.graph.initializers["inner.fc1.weight"].const_value.raw is model.inner.fc1.weight


def test_a_strict_capture_has_the_stack_traces_of_a_plain_one() -> None:
    class Positive(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x[:, :2])

    plain, strict = (
        to_onnx(capture(Positive(), (torch.randn(2, 4),), strategies=[one]), opset_version=20) for one in STRATEGIES[:2]
    )
    traces = [
        next(node.metadata_props["pkg.torch.onnx.stack_trace"] for node in one.model.graph if node.op_type == "Relu")
        for one in (strict, plain)
    ]
    assert traces[0] == traces[1]
    assert "_dynamo" not in traces[0]


class Chosen(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(3)
        rows = []
        for step in range(x.shape[0]):
            total = torch.tanh(total + x[step])
            rows.append(total)
        return torch.cond(x.sum() > 0, lambda a: torch.relu(a) * 2, torch.sin, (torch.stack(rows),))  # type: ignore[no-any-return]


def test_graphs_that_torch_wrote_before_change_nothing_in_a_file() -> None:
    x = torch.ones(2, 3)
    first, second = (export(Chosen(), (x,), dynamic_shapes=({0: "n"},)).model_proto for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    assert "<eval_with_key>" not in str(first)


def test_the_line_of_a_node_in_a_branch_is_the_models() -> None:
    own = 'File "/model.py", line 3, in forward\n    return torch.cond(x.sum() > 0, f, g, (x,))'
    generated = 'File "<eval_with_key>.36", line 6, in forward\n    mul = a * 2;  a = None'
    node = torch.fx.Graph().placeholder("x")
    for trace, plain in ((f"{own}\n  {generated}", own), (generated, None)):
        node.meta["stack_trace"] = trace
        assert node_metadata(node).get("pkg.torch.onnx.stack_trace") == plain
        assert source_location(node) == (plain and "/model.py:3")


class Deciding(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return self.one_way(x).relu()
        return x.exp()

    def one_way(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_a_branch_is_where_the_model_decides() -> None:
    model = Deciding()
    for module in (model, torch.jit.script(model)):
        branch = next(node for node in export(module, (torch.randn(3),)).model.graph if node.op_type == "If")
        assert "if x.sum() > 0:" in branch.metadata_props["pkg.torch.onnx.stack_trace"]
