"""batch_export.report.compare, .baseline, .runs and the verbs `compare` and `baseline`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recording import FACTS, cell, failed, passed, write_run

from batch_export.cli import main as cli
from batch_export.errors import UsageError
from batch_export.record import Cell, OnnxFacts, Record, RunFacts
from batch_export.report.baseline import baseline_of, read_baseline, write_baseline
from batch_export.report.compare import Thresholds, compare, confirmed, suspects
from batch_export.report.compare_text import comparison_json, comparison_markdown
from batch_export.report.runs import read_side, resolve_run
from batch_export.runtime.paired import PairedFacts

HERE = cell()
PASS, FAIL = passed(HERE), failed(HERE)
XFAIL = replace(FAIL, verdict="xfail", extra={"reason": "known"})
XPASS = replace(PASS, verdict="xpass")
SKIP = Record(HERE, "skip", message="cuda is not installed")
MISSING = Record(HERE, "missing", message="no record")


def kinds(base: list[Record], new: list[Record], **options: Any) -> list[str]:
    return [change.kind for change in compare(base, new, **options).changes]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (PASS, PASS, []),
        (PASS, FAIL, ["broke"]),
        (XFAIL, FAIL, ["broke"]),
        (PASS, MISSING, ["broke"]),
        (FAIL, PASS, ["fixed"]),
        (XFAIL, PASS, ["fixed"]),
        (XFAIL, XPASS, ["broke"]),
        (XPASS, FAIL, ["broke"]),
        (FAIL, FAIL, ["still"]),
        (FAIL, XFAIL, ["declared"]),
        (PASS, XFAIL, ["declared"]),
        (FAIL, failed(HERE, "capture"), ["earlier"]),
        (FAIL, failed(HERE, "mismatch"), ["still"]),
        (FAIL, failed(HERE, "timeout"), ["still"]),
        (XFAIL, replace(XFAIL, stage="capture"), ["earlier"]),
        (PASS, SKIP, ["vanished"]),
        (FAIL, SKIP, ["vanished"]),
        (SKIP, SKIP, []),
        (SKIP, PASS, ["new"]),
        (SKIP, FAIL, ["broke"]),
        (PASS, None, ["vanished"]),
        (SKIP, None, []),
        (None, PASS, ["new"]),
        (None, FAIL, ["broke"]),
        (None, SKIP, []),
    ],
)
def test_what_became_of_a_verdict(before: Record | None, after: Record | None, expected: list[str]) -> None:
    base, new = [r for r in [before] if r], [r for r in [after] if r]
    assert kinds(base, new) == expected
    assert compare(base, new).exit_code == int(any(kind in ("broke", "vanished", "earlier") for kind in expected))


def test_growth_counts_beyond_its_threshold_only() -> None:
    onnx = OnnxFacts("p", "b" * 64, 10_000, 20, 50)

    def grown(**changes: Any) -> list[str]:
        return kinds([PASS], [replace(PASS, **changes)])

    assert grown(onnx=replace(onnx, bytes=14_500)) == ["size"]
    assert grown(onnx=replace(onnx, bytes=10_900)) == []
    assert grown(onnx=replace(onnx, nodes=56)) == ["nodes"]
    assert grown(onnx=replace(onnx, nodes=55)) == []
    slow = tuple(replace(action, seconds=action.seconds * 4) for action in PASS.actions)
    assert grown(actions=slow) == ["export"]
    assert compare([PASS], [replace(PASS, actions=slow)]).exit_code == 0


def test_an_error_grows_only_beyond_the_factor_and_beyond_rounding() -> None:
    def with_error(error: float) -> Record:
        return replace(PASS, max_abs=error, runs=(RunFacts({}, (replace(FACTS, max_abs=error),)),))

    assert kinds([with_error(1e-7)], [with_error(1.5e-6)]) == []  # eight roundings of |2.0| are 1.9e-6
    assert kinds([with_error(1e-7)], [with_error(2.5e-6)]) == ["error"]
    assert kinds([with_error(1e-5)], [with_error(3e-5)]) == []
    assert kinds([with_error(0.0)], [with_error(1e-4)]) == ["error"]


def test_latency_is_suspected_then_confirmed_or_dropped() -> None:
    found = compare([passed(HERE)], [passed(HERE, ms=1.12, sha="b")])
    assert suspects(found) == (HERE,)
    assert found.exit_code == 0, "a suspicion is no verdict"
    slower = confirmed(found, {HERE: PairedFacts(1.12, 1.08, 1.15, 50)}, 1.05)
    assert [change.kind for change in slower.changes] == ["slower"]
    assert slower.exit_code == 1
    assert "+12 % (95 % of +8 % to +15 %, 50 interleaved rounds" in slower.changes[0].text
    assert confirmed(found, {HERE: PairedFacts(1.06, 1.04, 1.08, 50)}, 1.05).changes == ()
    busy = confirmed(found, {HERE: PairedFacts(1.5, 1.4, 1.6, 9, contended=True)}, 1.05)
    assert [change.kind for change in busy.changes] == ["suspect"]
    assert "the machine was busy when it was measured again" in busy.changes[0].text
    lost = confirmed(found, {HERE: PairedFacts(error="the file is no longer in the store")}, 1.05)
    assert (lost.exit_code, lost.changes[0].kind) == (0, "suspect")


def test_contended_never_regresses() -> None:
    for base, new in (
        (passed(HERE), passed(HERE, ms=9, contended=True)),
        (passed(HERE, contended=True), passed(HERE, ms=9)),
    ):
        found = compare([base], [new])
        assert [change.kind for change in found.changes] == ["busy"]
        assert (found.exit_code, found.contended, found.latency) == (0, 1, None)
    little = compare([passed(HERE)], [passed(HERE, ms=1.2, contended=True)])
    assert (little.changes, little.contended) == ((), 1)


def test_the_story_is_one_line() -> None:
    base = [passed(cell(f"m{i}")) for i in range(5)] + [failed(cell("bad")), failed(cell("worse"))]
    new = [
        failed(cell("m0")),
        failed(cell("m1")),
        *(passed(cell(f"m{i}"), ms=0.96) for i in (2, 3, 4)),
        passed(cell("bad")),
    ]
    found = compare(base, [*new, failed(cell("worse"))])
    assert found.story() == "2 new failures, 1 still failing, 1 fixed, latency -4 %"
    assert set(found.marks().values()) == {"new", "fixed", "still"}
    assert compare(base, base).story() == "2 still failing"


def test_markdown_and_json_hold_every_change() -> None:
    new = [failed(cell(f"m{i}"), text="a | b") for i in range(40)]
    found = compare([passed(cell(f"m{i}")) for i in range(40)], new, base_name="/home/somebody/x", new_name="latest")
    text = comparison_markdown(found)
    assert "<details><summary>Show</summary>" in text
    assert text.count("a \\| b") == 40
    assert "/home/" not in text
    data = comparison_json(found)
    assert (data["worse"], data["counts"]["broke"], len(data["changes"])) == (40, 40, 40)
    json.dumps(data)


# baselines


def test_a_baseline_compares_as_the_run_that_it_was_made_of(tmp_path: Path) -> None:
    records = [passed(cell("a")), failed(cell("b")), Record(cell("c"), "skip"), passed(cell("d"), contended=True)]
    path = tmp_path / "base.json"
    write_baseline(path, baseline_of(records, "a run"))
    back = read_baseline(path)
    assert [record.cell.model for record in back] == ["a", "b", "d"]
    new = [passed(cell("a"), ms=1.2, sha="b"), passed(cell("b")), passed(cell("d"), ms=2)]
    full, short = compare(records, new), compare(back, new)
    assert short.changes == full.changes
    assert (short.contended, round(short.latency or 0, 3)) == (1, 1.2)
    lines = path.read_text().splitlines()
    assert sum('"verdict"' in line for line in lines) == 3, "one line per cell, so that a diff can be read"
    write_baseline(tmp_path / "again.json", baseline_of(list(reversed(records)), "a run"))
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is damaged"),
        ("{}", "is not a baseline. Next step: make one with `baseline accept"),
        ('{"format": "batch_export baseline", "schema_version": 99}', "has schema version 99, this program reads 1"),
        (
            '{"format": "batch_export baseline", "schema_version": 1, "cells": {"x": {"verdict": "pass"}}}',
            "'x' is not the",
        ),
    ],
)
def test_a_file_that_is_no_baseline_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "base.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        read_baseline(path)


def test_a_cells_name_is_read_back() -> None:
    assert Cell.parse(HERE.name) == HERE
    with pytest.raises(ValueError, match="model/dynamic/opsetN/provider/exporter"):
        Cell.parse("bert/static/20/cpu/core")


# which run


def test_latest_counts_back_from_the_newest_run(tmp_path: Path) -> None:
    for day in ("2026-11-01", "2026-11-02", "2026-11-03"):
        write_run(tmp_path / day / "01-00-00-000", [PASS])
    assert resolve_run("latest", tmp_path).parent.name == "2026-11-03"
    assert resolve_run("latest~2", tmp_path).parent.name == "2026-11-01"
    assert resolve_run("2026-11-02/01-00-00-000", tmp_path).parent.name == "2026-11-02"
    with pytest.raises(UsageError, match=r"There is no run 'latest~3': .* holds 3 runs .*2026-11-03/01-00-00-000"):
        resolve_run("latest~3", tmp_path)
    with pytest.raises(UsageError, match="'yesterday' is not the folder of a run"):
        resolve_run("yesterday", tmp_path)
    with pytest.raises(UsageError, match=r"base\.json does not exist. Next step: make it with `baseline accept"):
        read_side(str(tmp_path / "base.json"), tmp_path)


def test_a_run_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "2026-11-01" / "1"
    write_run(folder, [PASS])
    text = (folder / "run.json").read_text().replace('"schema_version":1', '"schema_version":2')
    (folder / "run.json").write_text(text)
    with pytest.raises(UsageError, match=r"has schema version 2, this program reads up to 1\. Next step: update"):
        read_side(str(folder), tmp_path)
    (folder / "run.json").write_text('{"schema_version": 9, "spec": "of another shape"}')
    for words in (["report"], ["resume"], ["expect", "suggest"], ["bisect", PASS.cell.name, "--run"]):
        assert command(*words, str(folder), "--outputs", str(tmp_path)) == 2
    (folder / "run.json").write_text("{")
    with pytest.raises(UsageError, match=r"run\.json cannot be read .*truncated. Next step: name another run"):
        read_side(str(folder), tmp_path)


# the verbs


def command(*arguments: str) -> int:
    return cli.main(["batch_export", *arguments])


def test_compare_and_accept_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "outputs/2026-11-01/1", [PASS, passed(cell("other"))])
    write_run(tmp_path / "outputs/2026-11-02/1", [FAIL, passed(cell("other"))])
    assert command("compare", "latest~1", "latest", "--markdown", "c.md", "--json", "c.json") == 1
    assert "New failures (1)" in capsys.readouterr().out
    assert json.loads((tmp_path / "c.json").read_text())["worse"] == 1
    assert "New failures" in (tmp_path / "c.md").read_text()
    assert command("compare", "latest", "latest~1") == 0
    assert command("baseline", "accept", "latest", "--to", "base.json", "--with-failures") == 0
    assert command("compare", "base.json", "latest") == 0
    assert "1 still failing" in capsys.readouterr().out


def test_wrong_words_end_with_two_and_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "outputs/2026-11-01/1", [PASS])
    write_run(tmp_path / "outputs/2026-11-02/1", [passed(cell("quite_another"))])
    (tmp_path / "file").write_text("")
    for words, sentence in (
        (["compare", "latest~1", "latest"], "are of different matrices: they have no cell in common"),
        (["compare", "latest"], "compare: the following arguments are required: new"),
        (["compare", "latest~7", "latest"], "There is no run 'latest~7'"),
        (["baseline", "accept"], "required: --to"),
        (["baseline", "accept", "--to", "file/b.json"], "The baseline file/b.json could not be written"),
        (
            ["report", "latest", "--format", "csv", "-o", "file/r.csv"],
            "r.csv could not be written (Not a directory). Next step: ",
        ),
        (["compare", "latest", "latest", "--json", "file/c.json"], "choose another file with --json"),
        (["expect", "suggest", "--to", "nowhere/e.yaml"], "choose another file with --to"),
        (["baseline=latest~7"], "There is no run 'latest~7': outputs holds 2 runs"),
    ):
        assert command(*words) == 2
        assert sentence in capsys.readouterr().err


def test_thresholds_are_the_documented_ones() -> None:
    assert Thresholds() == Thresholds(error=4.0, latency=1.05, size=1.10, nodes=1.10, export=1.5)
