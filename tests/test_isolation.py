"""What models do to their process and to others, retries, flaky cells, and limits of single models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_stages.acting import FOREVER_S
from sweeping import by_name, cells, model, sweep

from batch_export.config.model import model_spec
from batch_export.errors import UsageError
from batch_export.judge.verdict import judge
from batch_export.record import Failure, Record
from batch_export.report.summary import Counts, summarise
from batch_export.runner.supervisor import default_memory_gb, limits_for
from batch_export.runtime.measuring import MeasureSpec
from batch_export.spec import RunnerSpec


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def limit_of(deed: str) -> float:
    """Short where something hangs, but long enough for the actions before it on a busy machine."""
    return 8.0 if deed == "hang" else 300.0


@pytest.mark.parametrize("end", ["", "hang", "segfault"])
def test_a_helper_that_left_its_session_ends_with_its_child(tmp_path: Path, end: str) -> None:
    pids = tmp_path / "pid"
    bad = model("bad", pids=str(pids), do={"Reference": "escaping_helper", "Translate@18": end})
    result = sweep(tmp_path, cells([bad], opsets=(18,)), timeout_s=limit_of(end))
    assert (result.records[0].verdict, result.records[0].stage) == {
        "": ("pass", ""),
        "hang": ("fail", "timeout"),
        "segfault": ("fail", "crash"),
    }[end]
    assert not is_alive(int(pids.read_text()))


@pytest.mark.parametrize("deed", ["fork_and_return", "fork_and_raise", "fork_and_leave"])
def test_a_process_that_a_model_forked_does_not_go_on_as_a_second_worker(tmp_path: Path, deed: str) -> None:
    pids, places = tmp_path / "pids", tmp_path / "places"
    arguments = {"pids": str(pids), "places": str(places), "do": {"Reference": deed}}
    work = cells([model("forks", **arguments)], opsets=(18,))
    result = sweep(tmp_path, work)
    record = result.records[0]
    assert (record.verdict, record.message) == ("pass", "")
    assert len(pids.read_text().split()) == 1
    [log] = tmp_path.rglob(record.log)
    told = log.read_text(encoding="utf-8")
    assert told.count("step Translate@18") == 1
    assert ("the other process" in told) == (deed != "fork_and_return")
    written = places.read_text().split()  # where each of them writes: one file would be damaged by the other
    assert len(written) == len({*written}) == (2 if deed == "fork_and_return" else 1)


@pytest.mark.parametrize(
    ("deed", "verdict", "stage", "error_class"),
    [
        ("endless_thread", "pass", "", ""),
        ("recurse", "fail", "model", "RecursionError"),
        ("close_everything", "fail", "crash", "ProcessExit"),
        ("out_of_memory", "fail", "memory", "MemoryError"),
        ("long_message", "fail", "model", "ValueError"),
        ("interrupt", "fail", "model", "KeyboardInterrupt"),
        ("signal_15", "fail", "crash", "SIGTERM"),
        ("signal_9", "fail", "crash", "SIGKILL"),
    ],
)
def test_what_a_model_does_to_its_process_is_its_own_affair(
    tmp_path: Path, deed: str, verdict: str, stage: str, error_class: str
) -> None:
    result = by_name(sweep(tmp_path, cells([model("bad", do={"Reference": deed}), model("good")], opsets=(18,))))
    bad = result["bad/static/opset18/cpu/core"]
    assert (bad.verdict, bad.stage, bad.error_class) == (verdict, stage, error_class)
    assert len(bad.message) <= 400
    assert "\n" not in bad.message
    assert result["good/static/opset18/cpu/core"].verdict == "pass"


def test_a_changed_folder_and_environment_are_put_back_before_the_next_step(tmp_path: Path) -> None:
    wanderer = model("wanderer", do={"Reference": "move_away", "Capture": "where", "Translate@20": "where"})
    result = sweep(tmp_path, cells([wanderer]), n_jobs=1)
    assert {record.verdict for record in result.records} == {"pass"}


@pytest.mark.parametrize(
    ("deed", "stage"),
    [("segfault", "crash"), ("hang", "timeout"), ("out_of_memory", "memory"), ("hard_exit", "crash")],
)
def test_a_cell_that_passes_when_tried_again_is_flaky_and_says_why(tmp_path: Path, deed: str, stage: str) -> None:
    work = cells([model("m", marker=str(tmp_path / "marker"), do={"Translate@20": f"once_{deed}"})])
    result = sweep(tmp_path, work, retries=1, n_jobs=1, timeout_s=limit_of(deed))
    good, flaky = result.records
    assert (good.verdict, good.attempts) == ("pass", ())
    assert (flaky.verdict, flaky.stage) == ("flaky", stage)
    assert [failure.stage for failure in flaky.attempts] == [stage]
    assert "passes, but failed once before" in flaky.message
    again = sweep(tmp_path, work, retries=1, n_jobs=1)
    assert [record.verdict for record in again.records] == ["pass", "pass"]  # tried anew by the next run, not served
    origins = {action.mnemonic: action.origin for action in again.records[1].actions}
    assert (origins["Translate"], origins["Reference"]) == ("ran", "cached")


def test_a_flaky_result_serves_its_own_run(tmp_path: Path) -> None:
    work = cells([model("m", marker=str(tmp_path / "marker"), do={"Reference": "once_segfault"})])
    result = sweep(tmp_path, work, retries=1, measure=MeasureSpec(), run="run", n_jobs=1)
    assert {record.verdict for record in result.records} == {"flaky"}
    assert result.counts["ran"] == 11
    (tmp_path / "run" / "records.jsonl").unlink()
    resumed = sweep(tmp_path, work, retries=1, measure=MeasureSpec(), run="run")
    assert [record.attempts for record in resumed.records] == [record.attempts for record in result.records]


def test_what_fails_every_time_fails_and_keeps_all_the_evidence(tmp_path: Path) -> None:
    work = cells([model("m", do={"Translate@20": "segfault"})])
    result = sweep(tmp_path, work, retries=2, n_jobs=1)
    good, bad = result.records
    assert good.verdict == "pass"
    assert (bad.verdict, bad.stage, len(bad.attempts)) == ("fail", "crash", 2)
    assert (tmp_path / "run0" / bad.log).read_text().count("step Translate@20") == 3


def test_flaky_is_unexpected_unless_it_is_allowed() -> None:
    work = cells([model("m")], opsets=(18,))
    attempts = (Failure("crash", "SIGSEGV", "it crashed"),)
    facts = Record(work[0].cell, "fail", attempts=attempts, runs=())
    assert judge(facts, work[0].model, {}, ()).verdict == "fail"  # nothing was compared: no pass, and so not flaky
    record = replace(facts, verdict="flaky")
    assert summarise([record], Counts()).exit_code == 1
    assert summarise([record], Counts(), allow_flaky=True).exit_code == 0
    assert summarise([record], Counts()).as_json()["flaky"] == 1


def test_a_model_has_limits_of_its_own(tmp_path: Path) -> None:
    patient = replace(model("patient", do={"Reference": "hang"}), timeout_s=1.0)
    record = sweep(tmp_path, cells([patient], opsets=(18,)), timeout_s=FOREVER_S).records[0]
    assert (record.verdict, record.stage) == ("fail", "timeout")
    assert "took more than 1 s" in record.message
    assert "timeout_s in the model's config" in record.message


def test_limits_of_a_model_come_before_the_runs_and_those_before_the_machines() -> None:
    plain = model("m")
    assert limits_for(plain, RunnerSpec(timeout_s=7)).seconds == 7
    assert limits_for(plain, RunnerSpec(memory_gb=2)).memory_bytes == 2 << 30
    assert limits_for(replace(plain, memory_gb=3), RunnerSpec(memory_gb=2)).memory_bytes == 3 << 30
    assert limits_for(plain, RunnerSpec()).memory_bytes == int(default_memory_gb() * 2**30)
    assert 0 < default_memory_gb() <= 8


@pytest.mark.parametrize("value", [-1, "ten", True, float("nan")])
def test_a_limit_that_is_none_is_said(value: object) -> None:
    config = {"_target_": "a.b", "inputs": {"x": {"dtype": "float32", "shape": [2]}}, "timeout_s": value}
    with pytest.raises(UsageError, match="model 'm': 'timeout_s' must be a positive number, or 0 for the run's own"):
        model_spec("m", config)
