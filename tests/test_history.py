"""batch_export.report.history and .trend, and the verb `history`."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recording import cell, circumstances, failed, passed, write_run

from batch_export.action import ActionResult
from batch_export.cli import main as cli
from batch_export.errors import UsageError
from batch_export.numbers.tolerances import Tolerance
from batch_export.record import ActionFacts, Record
from batch_export.report.history import MIGRATIONS, SCHEMA, Entry, open_history
from batch_export.report.making import Makings, agree
from batch_export.report.trend import sentences, steps, trend
from batch_export.runner.evidence_digests import seen_by
from batch_export.runner.surroundings import Surroundings
from batch_export.sources.toolchain import Toolchain
from batch_export.spec import Expectation, RunSpec

HERE = cell()


def night(number: int) -> Surroundings:
    return circumstances(f"2026-11-{number:02}T01:00:00", f"commit{number}", "host")


def test_a_runs_cells_are_found_again_in_the_order_of_the_runs(tmp_path: Path) -> None:
    with open_history(tmp_path / "h.sqlite") as history:
        history.add("b", night(2), "cmd", [failed(HERE)])
        history.add("a", night(1), "cmd", [passed(HERE, ms=2.0), passed(cell("other"))])
        entries = history.entries(HERE.name)
        assert [(e.run, e.verdict, e.stage, e.latency, e.commit) for e in entries] == [
            ("a", "pass", "", 2.0, "commit1"),
            ("b", "fail", "translate", None, "commit2"),
        ]
        history.add("b", night(2), "cmd", [passed(HERE)])
        assert [entry.verdict for entry in history.entries(HERE.name)] == ["pass", "pass"]
        assert history.cells() == (HERE.name, cell("other").name)
        assert {name: len(found) for name, found in history.recent(1).items()} == {HERE.name: 1}


def test_runs_write_at_the_same_time_and_nothing_is_lost(tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with open_history(tmp_path / "h.sqlite") as history:
                history.add(f"run{number}", night(number), "", [passed(cell(f"m{i}")) for i in range(50)])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    with open_history(tmp_path / "h.sqlite") as history:
        assert len(history.runs()) == 12
        assert all(len(history.entries(cell(f"m{i}").name)) == 12 for i in range(50))


def test_an_older_schema_is_brought_up_to_date_and_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    old = sqlite3.connect(path)
    old.executescript(MIGRATIONS[0] + "; PRAGMA user_version = 1;")
    old.execute("INSERT INTO runs VALUES ('old', '2026-10-01', '', '', 'h', '{}')")
    old.execute(f"INSERT INTO cells VALUES ('old', '{HERE.name}', 'pass', '', '', 1e-7, 1e-7, 1, 1, 1, 0, 1, 1, 1, 1)")
    old.commit()
    old.close()
    with open_history(path) as history:
        history.add("new", night(1), "", [passed(HERE)])
        assert [(e.run, e.sha256[:1]) for e in history.entries(HERE.name)] == [("old", ""), ("new", "a")]
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (SCHEMA,)


def test_a_newer_a_damaged_and_a_locked_file_end_in_a_sentence_and_stay(tmp_path: Path) -> None:
    newer = tmp_path / "newer.sqlite"
    sqlite3.connect(newer).executescript(f"PRAGMA user_version = {SCHEMA + 1};")
    with (
        pytest.raises(UsageError, match=f"has schema {SCHEMA + 1}, this program knows up to {SCHEMA}"),
        open_history(newer),
    ):
        pass
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"this is no database at all, not even nearly" * 50)
    before = damaged.read_bytes()
    with pytest.raises(UsageError, match=r"is damaged .*move it away and run `history rebuild`"), open_history(damaged):
        pass
    assert damaged.read_bytes() == before
    path = tmp_path / "locked.sqlite"
    with open_history(path) as history:
        history.add("a", night(1), "", [passed(HERE)])
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    with (
        pytest.raises(UsageError, match=r"is locked by another process\. Next step: try again"),
        open_history(path, wait_s=0.1) as history,
    ):
        history.add("b", night(2), "", [passed(HERE)])
    blocker.execute("ROLLBACK")
    with open_history(path) as history:
        assert history.runs() == ("a",)
    with (
        pytest.raises(UsageError, match=r"There is no history at .*history rebuild"),
        open_history(tmp_path / "x", create=False),
    ):
        pass


# trends


def entries(verdicts: str, latencies: list[float] | None = None, *, commits: bool = True) -> list[Entry]:
    words = {".": "pass", "F": "fail", "x": "xfail"}
    times = latencies or [1.0] * len(verdicts)
    return [
        Entry(
            *(f"run{i}", f"2026-11-{i:02}", f"c{i}" if commits else "c", "h", "{}", words[v], "", ""),
            *(None, times[i], times[i], times[i], False, None, None, None, None, ""),
        )
        for i, v in enumerate(verdicts)
    ]


def test_since_when_a_cell_is_bad() -> None:
    found = trend(entries("..F..FFF"))
    assert (found.bad, found.first_bad, found.last_good) == (True, 5, 4)
    assert trend(entries("..F..")).first_bad is None
    assert (trend(entries("FF")).first_bad, trend(entries("FF")).last_good) == (0, None)
    assert trend(()).runs == 0


def test_a_flake_is_a_change_that_nothing_explains() -> None:
    found = trend(entries("..F..", commits=False))
    assert (found.flips, found.flake_rate, found.flaky) == (2, 0.5, True)
    assert trend(entries("..F..")).flips == 0, "the commit differs each night: that may explain it"


def made_of(rows: list[Entry], *makings: dict[str, str]) -> list[Entry]:
    return [replace(row, making=json.dumps(making)) for row, making in zip(rows, makings, strict=True)]


def test_a_change_of_what_a_cell_was_made_of_explains_its_outcome() -> None:
    rows = [replace(row, commit="c-dirty") for row in entries(".F.", commits=False)]
    old, new = {"model": "1", "file": "1"}, {"model": "1", "file": "2"}
    assert trend(made_of(rows, old, new, old)).flips == 0
    assert trend(made_of(rows, old, old, old)).flips == 2
    assert trend(made_of(rows, old, {"model": "1"}, old)).flips == 2, "a cell that fails may have read less"
    assert trend(rows).flips == 0, "older rows say nothing of files that differ from the commit"
    assert trend([replace(row, commit="") for row in rows]).flips == 0, "nor outside of git"


def test_what_a_cell_was_made_of_is_in_its_history(tmp_path: Path) -> None:
    spec = write_run(tmp_path / "outputs/2026-11-01/1", [passed(HERE)])
    toolchain = circumstances("").toolchain
    read = replace(passed(HERE), seen={"abc": "def"})
    keys = replace(read, actions=(ActionFacts("Reference", "e" * 64, "ran", 0.1),))
    target = {spec.matrix.models[0].target: "d"}

    def making(record: Record, asked: RunSpec = spec, world: Toolchain = toolchain) -> str:
        with open_history(tmp_path / "h.sqlite") as history:
            history.add("a", replace(night(1), toolchain=world), "", [record], asked)
            return history.entries(HERE.name)[0].making

    plain = making(read)
    others = Expectation(model="other", reason="why")
    assert json.loads(plain).items() >= {"abc": "def", "Reference": "r" * 12}.items()
    assert plain == making(read, replace(spec, expectations=(others,))), "what is expected of other cells"
    differing = [
        making(read, replace(spec, expectations=(Expectation(reason="why"),))),
        making(read, replace(spec, tolerances={"float32": Tolerance(1.0, 1.0)})),
        making(read, replace(spec, runner=replace(spec.runner, timeout_s=1.0))),
        making(read, world=replace(toolchain, targets=target)),
        making(read, world=replace(toolchain, own={"Reference": "d"})),
        making(replace(read, seen={"abc": "other"})),
        making(keys),
    ]
    assert len({plain, *differing}) == len(differing) + 1
    assert not any(agree(json.loads(plain), json.loads(other)) for other in differing)


def test_arguments_that_json_has_no_word_for_are_told_apart(tmp_path: Path) -> None:
    spec = write_run(tmp_path / "outputs/2026-11-01/1", [passed(HERE)])

    def making(**arguments: Any) -> dict[str, str]:
        models = (replace(spec.matrix.models[0], arguments=arguments),)
        asked = replace(spec, matrix=replace(spec.matrix, models=models))
        return Makings(asked, circumstances("").toolchain).of(passed(HERE))

    names = {0: "cat", 1: "dog"}
    assert making(names=names) == making(names=dict(names))
    made = [making(names=names), making(names={"0": "cat", "1": "dog"}), making(k=float("inf")), making(k=None)]
    assert len({one["model"] for one in made}) == 4


def test_files_and_packages_that_actions_used_are_short_digests() -> None:
    first = ActionResult("Reference", "k", sources=(("/home/me/a.txt", "1"),), packages=(("torch", "2"),))
    again = replace(first, mnemonic="Capture", variables=(("TOKEN", "secret"),))
    found = seen_by([first, again])
    assert len(found) == 2
    assert all(len(word) == 12 for pair in found.items() for word in pair)
    assert seen_by([first]) == found, "no environment variable is in it"
    other = replace(again, sources=(("/home/me/a.txt", "2"),))
    assert sorted(seen_by([first, other]).values())[-1] == "several"


def test_a_step_in_latency_is_found_and_noise_is_not() -> None:
    draw = random.Random(3)

    def noisy(level: float, count: int) -> list[float]:
        return [level * (1 + draw.gauss(0, 0.015)) for _ in range(count)]

    alarms = sum(bool(steps(noisy(1.0, 30))) for _ in range(100))
    assert alarms <= 2
    caught = 0
    for _ in range(50):
        found = steps([*noisy(1.0, 15), *noisy(1.12, 10)])
        caught += len(found) == 1 and found[0].index in (14, 15, 16) and abs(found[0].ratio - 1.12) < 0.04
    assert caught >= 48
    (one, two) = steps([*noisy(1.0, 10), *noisy(1.3, 10), *noisy(1.0, 10)])
    assert (one.ratio > 1.2, two.ratio < 0.8) == (True, True)
    assert steps([1.0, 1.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0]) == (), "one slow run is no step"
    assert steps([]) == ()


def test_what_a_trend_says() -> None:
    rows = entries("......FF", [1.0] * 4 + [1.2] * 4)
    said = sentences(rows, trend(rows))
    assert said[0] == "8 runs"
    assert "bad since run6 (c6); last good in run5" in said
    assert any(line.startswith("latency stepped from 1.00 ms to 1.20 ms (+20 %) in run4") for line in said)


# the verb


def test_history_is_rebuilt_from_the_run_folders_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for day, record in enumerate([passed(HERE), passed(HERE), failed(HERE)], start=1):
        write_run(tmp_path / f"outputs/2026-11-0{day}/1", [record], made=night(day))
    unfinished = tmp_path / "outputs/2026-11-09/1"
    write_run(unfinished, [failed(HERE)])
    (unfinished / "summary.json").unlink()
    assert cli.main(["batch_export", "history", HERE.name]) == 2
    assert "Next step: run a sweep, or `history rebuild`" in capsys.readouterr().err
    assert cli.main(["batch_export", "history", "rebuild"]) == 0
    assert cli.main(["batch_export", "history", HERE.name]) == 0
    said = capsys.readouterr().out
    assert "outputs/history.sqlite: 3 runs" in said
    assert "bad since 2026-11-03/1 (commit3); last good in 2026-11-02/1" in said
    assert cli.main(["batch_export", "history", "bert/static/opset21/cpu/core"]) == 2
    assert f"nearest: {HERE.name}" in capsys.readouterr().err


def test_contended_latency_is_no_step() -> None:
    rows = [replace(entry, contended=i > 3) for i, entry in enumerate(entries("." * 8, [1.0] * 4 + [2.0] * 4))]
    assert trend(rows).steps == ()
