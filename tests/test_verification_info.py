"""exporter/diagnostics/verify.py and exporter/diagnostics/node_data.py: infos that cannot hide a difference."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from batch_export.errors import VerificationError
from batch_export.exporter.api import export
from batch_export.exporter.diagnostics.node_data import save_node_data
from batch_export.exporter.diagnostics.verify import VerificationInfo, require, verify_onnx_program
from batch_export.exporter.program.program import ONNXProgram

NAN, INF = math.nan, math.inf


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.relu(self.linear(x))
        return hidden * scale, hidden.sum(-1)


@pytest.fixture
def program() -> ONNXProgram:
    torch.manual_seed(0)
    return export(Small().eval(), (torch.randn(2, 4),), kwargs={"scale": torch.tensor(2.0)})


@pytest.mark.parametrize(
    ("expected", "actual", "largest"),
    [
        ([1.0, NAN], [1.0, NAN], 0.0),
        ([1.0, INF], [1.0, INF], 0.0),
        ([1.0, 2.0], [1.0, NAN], INF),
        ([1.0, NAN], [1.0, 2.0], INF),
        ([1.0, INF], [1.0, -INF], INF),
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([], [], 0.0),
        ([1.0], [1.0, 1.0], INF),
    ],
)
def test_values_are_compared_as_values(expected: list[float], actual: list[float], largest: float) -> None:
    info = VerificationInfo.from_tensors("y", torch.tensor(expected), torch.tensor(actual))
    assert info.max_abs_diff == largest


def test_unsigned_numbers_do_not_wrap_and_int64_are_exact() -> None:
    info = VerificationInfo.from_tensors(
        "y", torch.tensor([5], dtype=torch.uint8), torch.tensor([10], dtype=torch.uint8)
    )
    assert info.max_abs_diff == 5
    near = VerificationInfo.from_tensors("y", torch.tensor([2**53 + 1]), torch.tensor([2**53]))
    assert near.facts is not None
    assert near.facts.unequal == 1
    with pytest.raises(VerificationError, match="output y differs by 1"):
        require([near])


def test_outputs_are_compared_on_the_example_inputs(program: ONNXProgram) -> None:
    infos = verify_onnx_program(program)
    assert [info.name for info in infos] == [value.name for value in program.model.graph.outputs]
    assert all(info.max_abs_diff < 1e-5 for info in infos)
    assert int(infos[0].abs_diff_hist[0].sum()) == 8
    assert json.loads(json.dumps(infos[0].asdict()))["expected_dtype"] == "torch.float32"
    require(infos)


def test_intermediates_have_the_exported_program_s_names(program: ONNXProgram) -> None:
    infos = verify_onnx_program(program, (torch.ones(2, 4),), {"scale": torch.tensor(3.0)}, compare_intermediates=True)
    assert [info.name for info in infos] == ["linear", "relu", "mul", "sum_1"]


def test_constants_and_merged_normalisations_are_compared_too() -> None:
    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Conv1d(4, 4, 1), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
            self.relu = torch.nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x) @ torch.tril(torch.ones(4, 4)) + self.relu

    infos = verify_onnx_program(export(Masked().eval(), (torch.randn(2, 4, 4),)), compare_intermediates=True)
    assert [info.name for info in infos] == ["tril", "batch_norm", "matmul", "add"]
    require(infos)


def test_a_missing_output_is_an_error(program: ONNXProgram) -> None:
    program.model.graph.outputs.pop()
    program.provenance = replace(program.provenance, output_kinds=program.output_kinds[:-1])
    program.release()
    with pytest.raises(VerificationError, match="the ONNX model has 1 outputs, and the exported program 2"):
        verify_onnx_program(program)


def test_no_inputs_at_all_are_asked_for(program: ONNXProgram) -> None:
    exported: Any = program.exported_program
    exported._example_inputs = None
    with pytest.raises(ValueError, match="has no example inputs; pass args and kwargs"):
        verify_onnx_program(program)


def test_node_data_has_a_value_for_every_node_and_output(program: ONNXProgram, tmp_path: Path) -> None:
    infos = verify_onnx_program(program, compare_intermediates=True)
    paths = save_node_data(infos, program.model, tmp_path, "small")
    assert [path.name for path in paths] == ["small_max_abs_diff.json", "small_max_rel_diff.json"]
    data = json.loads(paths[0].read_text())["main_graph"]
    assert {node.name for node in program.model.graph} <= set(data["results"])
    assert {"[value] mul", "[value] sum_1"} <= set(data["results"])
    limits = [item["value"] for item in data["thresholds"]]
    assert limits == sorted(limits)


def test_model_explorer_writes_the_same_form(program: ONNXProgram, tmp_path: Path) -> None:
    """Its own classes, where they are installed, give the same document, but for options left at their defaults."""
    builder = pytest.importorskip("model_explorer.node_data_builder")
    infos = verify_onnx_program(program, compare_intermediates=True)
    ours = json.loads(save_node_data(infos, program.model, tmp_path)[0].read_text())
    theirs = builder.ModelNodeData(
        {
            name: builder.GraphNodeData(
                results={key: builder.NodeDataResult(**entry) for key, entry in graph["results"].items()},
                thresholds=[builder.ThresholdItem(**item) for item in graph["thresholds"]],
            )
            for name, graph in ours.items()
        }
    )
    written = json.loads(theirs.to_json_string())
    assert {name: {key: graph[key] for key in ours[name]} for name, graph in written.items()} == ours


def test_a_number_has_the_shape_of_what_it_is_compared_with() -> None:
    assert VerificationInfo.from_tensors("n", torch.tensor([3]), 3).max_abs_diff == 0.0
    assert VerificationInfo.from_tensors("n", 2.5, torch.tensor([2.0, 2.5])).max_abs_diff == 0.5
    assert VerificationInfo.from_tensors("n", torch.tensor([3]), torch.tensor(3)).max_abs_diff == math.inf
