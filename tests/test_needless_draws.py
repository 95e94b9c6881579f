"""judge/needless_draws.py: a file draws random numbers only where its model does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faulty_exporters
import onnx
import pytest
import torch
from sweeping import CORE, CPU

from batch_export.judge.needless_draws import needless_draws
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell
from batch_export.spec import AxisSpec, ExporterSpec, InputSpec, ModelSpec
from batch_export.stages import whole_cell

STEADY = {"deterministic": True, "drew": False}


@pytest.mark.parametrize(
    ("eager", "operators", "found"),
    [
        (STEADY, {"Dropout": True, "If": False}, ["RandomOperator"]),
        (STEADY, {"Dropout": False}, []),  # whether it draws is computed
        (STEADY, {}, []),
        ({"deterministic": True, "drew": True}, {"Dropout": True}, []),
        ({"deterministic": False, "drew": False}, {"Dropout": True}, []),
        ({"deterministic": True}, {"Dropout": True}, []),  # of older versions
    ],
)
def test_what_is_known_of_both_sides_decides(
    eager: dict[str, bool], operators: dict[str, bool], found: list[str]
) -> None:
    assert [one.error_class for one in needless_draws(eager, {"random_operators": operators})] == found


class Steady(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)


class Idle(torch.nn.Module):
    """It draws, and nothing depends on that."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) + 0 * torch.rand_like(x)


def rare(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """The output is another one in one run of a thousand."""
    model = faulty_exporters._exported(module, args, kwargs, path, opset_version, **options)
    helper, first = onnx.helper, len(model.graph.node)
    faulty_exporters._after_outputs(model, 0, "Add", "more")
    made = [
        helper.make_node("RandomUniform", [], ["drawn"], shape=[1]),
        helper.make_node("Constant", [], ["limit"], value_float=0.999),
        helper.make_node("Greater", ["drawn", "limit"], ["is_rare"]),
        helper.make_node("Cast", ["is_rare"], ["more"], to=onnx.TensorProto.FLOAT),
    ]
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes[:first], *made, *nodes[first:]])
    onnx.save(model, path)


@pytest.mark.parametrize(
    ("name", "exporter", "found"),
    [
        ("Steady", ExporterSpec("rare", "test_needless_draws.rare"), ["RandomOperator"]),
        ("Steady", CORE, []),
        ("Idle", CORE, []),
    ],
)
def test_a_file_that_draws_alone_is_a_finding(
    tmp_path: Path, name: str, exporter: ExporterSpec, found: list[str]
) -> None:
    inputs, axes = (InputSpec(("x",), "float32", ("batch", 4)),), (AxisSpec("batch", 2, (5,)),)
    model = ModelSpec(name.lower(), f"test_needless_draws.{name}", {}, inputs, axes)
    planned = PlannedCell(Cell(model.name, "full", 20, "cpu", exporter.name), model, CPU, exporter)
    record = whole_cell._tried(planned, tmp_path, lambda: None, False)
    assert (record.failure, [finding.error_class for finding in record.findings]) == (None, found)
    assert not found or "draws random numbers at each run (RandomUniform), and the model" in record.findings[0].message
