"""run.json: what was planned comes back as it was, whatever a model's config says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from recording import CORE, CPU, cell, model

from batch_export.plan.matrix import PlannedCell
from batch_export.report.run_folder import read_run, write_run
from batch_export.runtime.measuring import MeasureSpec
from batch_export.spec import InputSpec, MatrixSpec, RunnerSpec, RunSpec


def test_what_json_cannot_say_comes_back_as_it_was(tmp_path: Path) -> None:
    said = {"fill": -math.inf, "labels": {0: "cat", 1: "dog"}, "flags": {True: b"\xff"}, "layers": {"b": 1, "a": 2}}
    inputs = (*model("m").inputs, InputSpec(("mask",), "float32", ("batch", 4), fill=-math.inf))
    asked = replace(model("m"), arguments=said, inputs=inputs)
    matrix = MatrixSpec((asked,), (18,), ("static",), (CPU,), (CORE,))
    write_run(
        tmp_path,
        RunSpec(matrix, RunnerSpec(), MeasureSpec(), {}, "store", "runs"),
        [PlannedCell(cell("m"), asked, CPU, CORE)],
        "batch-export",
    )

    (found,) = read_run(tmp_path).cells()
    assert found.model == asked
    assert [*found.model.arguments["layers"]] == ["b", "a"]
