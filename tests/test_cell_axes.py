"""The fields of a cell are the axes: another field is another axis, for names, tables and the places of files."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import pytest

from batch_export.cli.export import ExportedFile
from batch_export.cli.export import _folder as folder
from batch_export.config.schema import MatrixConfig
from batch_export.plan.matrix import PlannedCell
from batch_export.record import AXES, Cell, Record
from batch_export.report.html_data import ReportContext, report_data
from batch_export.report.spreadsheet import COLUMNS
from batch_export.report.summary import Counts, summarise
from batch_export.runner.units import group
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.spec import Exclusion, Expectation, ExporterSpec, MatrixSpec, ModelSpec, Pattern

HERE = Cell("bert", "full", 20, "cpu", "core")


@dataclass(frozen=True, slots=True, order=True)
class Finer(Cell):
    """A cell of a matrix with one axis more."""

    precision: str = field(default="float32", metadata={"key": "precisions"})


def planned(cell: Cell) -> PlannedCell:
    return PlannedCell(
        cell, ModelSpec("bert", "a.b", {}, ()), ProviderSpec("cpu", "onnxruntime"), ExporterSpec("core", "x")
    )


FINER = Finer("bert", "full", 20, "cpu", "core", "float16")


@pytest.mark.parametrize("cell", [HERE, FINER])
def test_a_name_stands_for_one_cell(cell: Cell) -> None:
    assert type(cell).parse(cell.name) == cell
    assert cell.name.startswith("bert/full/opset20/cpu/core")


@pytest.mark.parametrize(
    "name",
    ["", "bert", "bert/full/20/cpu/core", "bert/full/opset/cpu/core", "bert/full/opset20/cpu/", f"{HERE.name}/x"],
)
def test_what_is_no_name_is_told_the_form(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a cell, which is model/dynamic/opsetN/provider/exporter"):
        Cell.parse(name)


def test_another_axis_is_in_the_name_the_table_and_the_place_of_the_file() -> None:
    other = Finer("bert", "full", 20, "cpu", "core")
    assert FINER.name == "bert/full/opset20/cpu/core/float16"
    assert (HERE.table, FINER.table) == (("cpu", "core"), ("cpu", "core", "float16"))
    assert folder(HERE) == "bert/full"
    assert len({folder(cell) for cell in (HERE, FINER, other)}) == 3
    assert list(Finer.axes().items())[-1] == ("precision", "precisions")


def test_another_axis_is_in_captures_and_files_and_in_the_pages_row() -> None:
    assert (HERE.capture, FINER.capture) == ("bert/full/core", "bert/full/core/float16")
    assert (HERE.file, FINER.file) == ("bert/full/opset20/core", "bert/full/opset20/core/float16")
    assert [unit.name for unit in group([planned(HERE), planned(FINER)], 1)] == [HERE.capture, FINER.capture]
    made = ExportedFile(FINER, "a.onnx", "sha")
    assert list(made.entry()) == ["model", "dynamic", "opset", "exporter", "precision", "path", "sha256", "external"]
    data = report_data([Record(FINER, "pass")], summarise([Record(FINER, "pass")], Counts()), ReportContext())
    model, dynamic, opset, *others = data["cells"][0][:6]
    assert [data["text"][word] for word in (model, dynamic, *others)] == ["bert", "full", "cpu", "core", "float16"]
    assert opset == 20
    assert data["axes"] == [[axis, key, int(axis == "opset")] for axis, key in Cell.axes().items()]


def test_everything_that_lists_axes_lists_these() -> None:
    for kind in (Pattern, Exclusion, Expectation):
        assert set(AXES) <= {item.name for item in fields(kind)}, kind
    assert set(Cell.axes().values()) <= {item.name for item in fields(MatrixSpec)}
    assert set(Cell.axes().values()) <= {item.name for item in fields(MatrixConfig)}
    assert [column for column in COLUMNS if column in AXES] == list(AXES)


@pytest.mark.parametrize("axis", AXES)
def test_a_pattern_looks_at_every_axis(axis: str) -> None:
    assert Pattern().matches(HERE)
    assert Pattern(**{axis: HERE.words[axis][:1] + "*"}).matches(HERE)
    assert not Pattern(**{axis: "other"}).matches(HERE)
    assert not Expectation("why", **{axis: "other"}).matches(HERE)
    assert Exclusion("why").matches(HERE)
