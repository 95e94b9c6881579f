"""judge/declared_names.py: axes of one name in a file are of one size wherever the model was run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faulty_exporters
import onnx
import pytest
import torch
from sweeping import CORE, CPU

from batch_export.judge.declared_names import wrongly_named
from batch_export.numbers.facts import OutputFacts
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Record, RunFacts
from batch_export.spec import AxisSpec, ExporterSpec, InputSpec, ModelSpec
from batch_export.stages import whole_cell

IDS = InputSpec(("ids",), "int64", ("batch", "seq"))
MASK = InputSpec(("mask",), "int64", ("batch", "past+seq"))
MODEL = ModelSpec(
    "named", "", {}, (IDS, MASK), (AxisSpec("batch", 2, (1, 5)), AxisSpec("seq", 7, (1,)), AxisSpec("past", 3, (4,)))
)
ALIKE = ModelSpec("alike", "", {}, (IDS,), (AxisSpec("batch", 4, (1, 6)), AxisSpec("seq", 4, (1, 6))))


def ran(batch: int, seq: int, past: int = 3, actual: int | None = None, variant: str = "") -> RunFacts:
    shapes = ((batch, seq), (batch, seq if actual is None else actual))
    sizes = {"batch": batch, "seq": seq, "past": past}
    return RunFacts(sizes, (OutputFacts("y", "float32", "float32", *shapes, max_abs=0.0),), variant=variant)


RUNS = [ran(2, 7), ran(1, 1, 4), ran(5, 1), ran(2, 7, variant="zeros")]


def described(ids: Sequence[int | str], mask: Sequence[int | str] = ("p", "q"), y: Any = None) -> dict[str, Any]:
    return {
        "inputs": [{"name": "ids", "shape": tuple(ids)}, {"name": "mask", "shape": tuple(mask)}],
        "outputs": [{"name": "y", "shape": y}],
    }


@pytest.mark.parametrize(
    ("file", "where", "other", "sizes"),
    [
        (described(["n", "n"]), "dimension 1 of input 'ids'", "dimension 0 of input 'ids'", "7 and 2"),
        (described(["seq", "batch"]), "dimension 0 of input 'ids'", "the axis 'seq' that was asked for", "2 and 7"),
        (described(["a", "b"], ["a", "b"]), "dimension 1 of input 'mask'", "dimension 1 of input 'ids'", "10 and 7"),
        (
            described(["past+seq", "b"]),
            *("dimension 0 of input 'ids'", "the axis 'past+seq' that was asked for", "2 and 10"),
        ),
        (described(["a", "b"], y=("b", "a")), "dimension 0 of output 'y'", "dimension 1 of input 'ids'", "2 and 7"),
        (described(["a", "b"], y=("u", "u")), "dimension 1 of output 'y'", "dimension 0 of output 'y'", "7 and 2"),
    ],
)
def test_a_name_of_two_sizes_is_a_finding(file: dict[str, Any], where: str, other: str, sizes: str) -> None:
    finding = next(wrongly_named(file, MODEL, "full", RUNS))
    assert (finding.stage, finding.error_class) == ("dynamic", "TiedAxes")
    name = finding.message.split("'")[3]
    assert finding.message == (
        f"{where} is called {name!r} as {other} is, and they are {sizes} at batch=2, seq=7, past=3: axes of one name "
        "are of one size. Next step: give each axis the name that was asked for, and axes that may differ names of "
        "their own"
    )


@pytest.mark.parametrize(
    ("file", "runs"),
    [
        (described(["batch", "seq"], ["batch", "past+seq"], ("batch", "seq")), RUNS),
        (described(["s0", "s1"], ["s0", "s2"], ("s0", "unk__0")), RUNS),  # other names are no other sizes
        (described(["?", "?"], ["?", "?"], ("?", "?")), RUNS),  # without a name, without a promise
        (described([2, 7], [2, 10], None), RUNS),
        (described(["n", "n"]), [ran(4, 4), ran(1, 6), ran(6, 1), RunFacts({"batch": 2}, rejected="they differ")]),
        (described(["n", "n"], y=("n", "n")), [ran(1, 6)]),  # axes that broadcast are one axis of the file
        (described(["n", "n"], y=("n+1", "n+1")), [ran(1, 6)]),
        (described(["a", "b"], y=("a", "a")), [ran(2, 7, actual=2)]),  # wrong values: the comparison says so
    ],
)
def test_other_names_are_no_finding(file: dict[str, Any], runs: list[RunFacts]) -> None:
    assert list(wrongly_named(file, MODEL, "full", runs)) == []


def test_sizes_beyond_the_guards_of_a_file_say_nothing() -> None:
    assert list(wrongly_named(described(["n", "n"]), MODEL, "full", [ran(2, 7)], ["batch == seq"])) == []
    assert len(list(wrongly_named(described(["n", "n"]), MODEL, "full", [ran(2, 7)], ["batch <= 2"]))) == 1


class Added(torch.nn.Module):
    """Eager broadcasts, and so does the file: the two axes are one in it."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x + y)


class Apart(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x.sum(0) + y.sum(0))


def one_name(module: Any, args: Any, kwargs: Any, *, path: Path, opset_version: int, **options: Any) -> None:
    """Every free axis has the same name."""
    model = faulty_exporters._exported(module, args, kwargs, path, opset_version, **options)
    for value in (*model.graph.input, *model.graph.output):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param:
                dimension.dim_param = "n"
    onnx.save(model, path)


def tried(folder: Path, name: str, exporter: ExporterSpec, check: tuple[int, ...]) -> Record:
    model = ModelSpec(
        name.lower(),
        f"test_declared_names.{name}",
        {},
        (InputSpec(("x",), "float32", ("rows", 4)), InputSpec(("y",), "float32", ("lines", 4))),
        (AxisSpec("rows", 3, (5, 1)), AxisSpec("lines", 3, check)),
    )
    planned = PlannedCell(Cell(model.name, "full", 20, "cpu", exporter.name), model, CPU, exporter)
    return whole_cell._tried(planned, folder, lambda: None, False)


PLUGIN = ExporterSpec("one_name", "test_declared_names.one_name")


@pytest.mark.filterwarnings("ignore:the model makes the axes")
@pytest.mark.parametrize(
    ("name", "exporter", "check", "found"),
    [
        ("Apart", CORE, (2, 6), []),
        ("Apart", PLUGIN, (2, 6), ["TiedAxes"]),
        ("Added", CORE, (1, 6), []),
        ("Added", CORE, (5, 6), []),
        ("Added", PLUGIN, (1, 6), []),
    ],
)
def test_a_file_may_tie_what_its_model_ties(
    tmp_path: Path, name: str, exporter: ExporterSpec, check: tuple[int, ...], found: list[str]
) -> None:
    record = tried(tmp_path, name, exporter, check)
    assert record.failure is None
    assert all(run.outputs for run in record.runs)
    assert [finding.error_class for finding in record.findings] == found
