"""batch_export.report.expectations: entries for today's failures, and entries that are stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from recording import CORE, CPU, cell, failed, model, passed, write_run

from batch_export.cli import main as cli
from batch_export.judge.verdict import judge
from batch_export.record import Record
from batch_export.report.expectations import stale, stale_exclusions, suggest, yaml_text
from batch_export.runtime.measuring import MeasureSpec
from batch_export.spec import Exclusion, Expectation, MatrixSpec, RunnerSpec, RunSpec

GRID = [cell(name, dynamic, opset) for name in ("a", "b") for dynamic in ("static", "full") for opset in (18, 20)]


def run(bad: dict[int, Record]) -> list[Record]:
    return [bad.get(index, passed(where)) for index, where in enumerate(GRID)]


def test_suggestions_declare_exactly_todays_failures() -> None:
    whole = {i: failed(GRID[i]) for i in range(4)}
    one = {5: failed(GRID[5], "mismatch", "ValueMismatch", "off by 0.5: [1] # no comment")}
    records = run(whole | one)
    entries = suggest(records)
    assert [(e.model, e.dynamic, e.opset, e.stage) for e in entries] == [
        ("a", "*", "*", "translate"),
        ("b", "static", "20", "mismatch"),
    ]
    read = yaml.safe_load(yaml_text(entries))["expectations"]
    again = [Expectation(**{name: str(value) for name, value in entry.items()}) for entry in read]
    judged = [judge(record, model(record.cell.model), {}, again) for record in records]
    assert {record.verdict for record in judged} == {"pass", "xfail"}
    assert sum(record.verdict == "xfail" for record in judged) == 5


def test_a_diagonal_of_failures_is_not_widened_over_cells_that_pass() -> None:
    entries = suggest(run({0: failed(GRID[0]), 3: failed(GRID[3])}))
    assert {(e.dynamic, e.opset) for e in entries} == {("static", "18"), ("full", "20")}
    assert suggest(run({})) == ()
    assert yaml.safe_load(yaml_text(())) == {"expectations": []}


def asked(*names: str, shard: str = "", chosen: tuple[str, ...] = (), **more: Any) -> RunSpec:
    """A run of the grid's axes with these models."""
    matrix = MatrixSpec(tuple(map(model, names)), (18, 20), ("static", "full"), (CPU,), (CORE,), chosen=chosen)
    matrix = replace(matrix, exclude=more.pop("exclude", ()))
    return RunSpec(matrix, RunnerSpec(shard=shard), MeasureSpec(), {}, "store", "out", **more)


KNOWN = ["a", "b", "elsewhere"]


def test_stale_entries_are_those_that_say_nothing_here() -> None:
    records = run({0: replace(failed(GRID[0]), verdict="xfail")})

    def of(**axes: str) -> tuple[str, ...]:
        return stale(asked("a", "b", expectations=(Expectation("why", **axes),)), records, KNOWN)

    assert of(model="a", dynamic="static", opset="18") == ()
    assert of(model="b") == ("model b (why): nothing that it matches fails any more; remove it",)
    assert of(model="elsewhere") == (), "this run says nothing of other models"
    assert of(provider="cuda") == (), "nor of other providers"
    assert of(model="toys:elsewhere") == (), "nor of a collection's"
    assert of(model="tpyo") == ("model tpyo (why): no model has this name",)


def test_an_expectation_of_which_the_run_has_but_some_cells_is_not_stale() -> None:
    entries = (Expectation("why", opset="18"), Expectation("why", model="mine"), Expectation("why", model="a"))
    others = [record for record in run({}) if record.cell.opset == 20 or record.cell.model == "b"]
    said = stale(asked("a", "b", expectations=entries), others, KNOWN)
    assert said == ("model mine (why): no model has this name",), "a run of what failed last has some cells only"
    whole = asked("a", shard="1/3", chosen=("a", "b", "mine"), expectations=entries)
    records = [record for record in run({}) if record.cell.model == "a"]
    assert stale(whole, records, KNOWN) == ("model a (why): nothing that it matches fails any more; remove it",)
    old = asked("a", shard="1/3", expectations=entries)
    assert stale(old, records, [*KNOWN, "mine"]) == (), "a shard of an older version may have left cells out"


EXCLUSIONS = [
    (Exclusion("why", model="a"), ""),
    (Exclusion("why", model="a*", opset="2?"), ""),
    (Exclusion("why", model="gtp*"), "model gtp* (why): matches no cell; the matrix has no model 'gtp*'"),
    (
        Exclusion("why", model="a", provider="cudaa", opset="23"),
        "model a opset 23 provider cudaa (why): matches no cell; the matrix has no opset '23' and no provider 'cudaa'",
    ),
    (Exclusion("why", model="other", opset="20"), ""),
]


@pytest.mark.parametrize(("entry", "said"), EXCLUSIONS)
def test_an_exclusion_that_matches_nothing_is_told(entry: Exclusion, said: str) -> None:
    assert stale_exclusions(asked("a", "b", "other", exclude=(entry,))) == ((said,) if said else ())


@pytest.mark.parametrize(("entry", "said"), EXCLUSIONS)
def test_an_exclusion_is_judged_by_the_models_of_all_shards(entry: Exclusion, said: str) -> None:
    shard = asked("b", shard="2/3", chosen=("a", "b", "other"), exclude=(entry,))
    assert stale_exclusions(shard) == ((said,) if said else ())
    older = stale_exclusions(asked("b", shard="2/3", exclude=(entry,)))
    assert bool(older) == ("provider" in said), "a shard of an older version does not know the other models"


def test_suggest_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "outputs/2026-11-01/1", run({5: failed(GRID[5])}))
    assert cli.main(["batch_export", "expect", "suggest"]) == 0
    assert "  - model: b\n    dynamic: static\n    opset: '20'\n" in capsys.readouterr().out
    assert cli.main(["batch_export", "expect", "forget"]) == 2
    assert "invalid choice: 'forget'" in capsys.readouterr().err
