"""The runner over fake stages: who is blamed for what, what is cached and measured, and when nothing is started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_processes import RunProcess, wait_until
from sweeping import CPU, PLUGIN, STAGES, Listener, by_name, cells, model, sweep

from batch_export import steps
from batch_export.errors import RunError, StoreError
from batch_export.numbers.tolerances import Tolerance
from batch_export.record import Record
from batch_export.runner import launcher
from batch_export.runner import sweep as run_module
from batch_export.runtime.measuring import MeasureSpec
from batch_export.runtime.provider_spec import ProviderSpec
from batch_export.store import Store

TESTS = Path(__file__).parent


def outcome(record: Record) -> tuple[str, str, str]:
    return record.verdict, record.stage, record.error_class


def test_the_stage_table_of_the_tests_has_the_rooms_of_the_real_one() -> None:
    assert set(STAGES) == set(steps.modules())


def test_a_warm_run_starts_no_child_and_gives_the_same_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = cells([model("a"), model("b")], dynamic=("static", "full"))
    cold = sweep(tmp_path, planned, measure=MeasureSpec())
    assert [record.verdict for record in cold.records] == ["pass"] * 8
    # Per model: Reference, Eager; per group: Capture; per cell: Translate, Check, Run, Measure.
    assert cold.counts == {"ran": 2 * 2 + 4 + 4 * 8, "cached": 0, "rerun_failures": 0}

    monkeypatch.setattr(launcher.Launcher, "launch", lambda *_: pytest.fail("a child was started"))
    listener = Listener()
    warm = sweep(tmp_path, planned, measure=MeasureSpec(), listener=listener)
    assert warm.counts == {"ran": 0, "cached": 40, "rerun_failures": 0}
    assert listener.units == []
    assert {action.origin for record in warm.records for action in record.actions} == {"cached"}
    for before, after in zip(cold.records, warm.records, strict=True):
        assert (before.cell, before.runs, before.latency_ms) == (after.cell, after.runs, after.latency_ms)
        assert (after.latency_ms and after.latency_ms.median, after.eager_ms) == (1.0, 3.0)


def test_the_forkserver_starts_before_sources_are_read_where_the_store_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    read, prepare = run_module.toolchain_for, launcher.Launcher.prepare
    monkeypatch.setattr(
        run_module, "toolchain_for", lambda *args, **known: (order.append("read"), read(*args, **known))[1]
    )
    monkeypatch.setattr(launcher.Launcher, "prepare", lambda one: (order.append("prepare"), prepare(one))[1])
    planned = cells([model("a")], opsets=(18,))
    sweep(tmp_path, planned)
    assert order[:2] == ["prepare", "read"]
    order.clear()
    sweep(tmp_path, planned)
    assert order == ["read"], "nothing is missing"


def test_the_reporter_hears_which_action_of_which_cell_each_unit_is_at(tmp_path: Path) -> None:
    listener = Listener()
    sweep(tmp_path, cells([model("a")]), measure=MeasureSpec(), listener=listener, n_jobs=1)
    first, second = "a/static/opset18/cpu/core", "a/static/opset20/cpu/core"
    acted = [(unit, where, mnemonic) for unit, where, mnemonic in listener.places if mnemonic]
    assert acted == [
        *(("a/static/core", first, name) for name in ("Reference", "Capture", "Translate", "Check", "Run")),
        *(("a/static/core", second, name) for name in ("Translate", "Check", "Run")),
        *(("a/measure", first, name) for name in ("Measure", "Eager")),
        ("a/measure", second, "Measure"),
    ]
    assert listener.places[0] == ("a/static/core", first, ""), "before its first action a cell is looked up"


def test_a_changed_tolerance_executes_nothing_and_changes_the_verdict(tmp_path: Path) -> None:
    planned = cells([model("a")], opsets=(18,))
    assert sweep(tmp_path, planned).records[0].verdict == "pass"
    strict = sweep(tmp_path, planned, tolerance=Tolerance(1e-6, 0.0))
    assert outcome(strict.records[0])[:2] == ("fail", "mismatch")
    assert strict.counts["ran"] == 0


@pytest.mark.parametrize(
    ("deed", "stage", "error_class"),
    [
        ("raise", "model", "ValueError"),
        ("exit", "model", "SystemExit"),
        ("surrogates", "model", "ValueError"),
        ("hard_exit", "crash", "ProcessExit"),
        ("segfault", "crash", "SIGSEGV"),
        ("abort", "crash", "SIGABRT"),
        ("full_disk", "environment", "OSError"),
        ("flood", "crash", "OutputLimit"),
    ],
)
def test_a_model_that_misbehaves_fails_its_own_cells_only(
    tmp_path: Path, deed: str, stage: str, error_class: str
) -> None:
    planned = cells([model("good"), model("bad", do={"Reference": deed}), model("fine")])
    listener = Listener()
    result = sweep(tmp_path, planned, listener=listener)
    assert [outcome(record) for record in result.records if record.cell.model == "bad"] == [
        ("fail", stage, error_class)
    ] * 2
    assert {record.verdict for record in result.records if record.cell.model != "bad"} == {"pass"}
    assert listener.ended
    assert (
        sorted(listener.ended_units) == sorted(listener.units) == sorted(name for name, _ in listener.lanes[0][0].units)
    )
    assert not list((tmp_path / "store" / "tmp").iterdir())
    bad = by_name(result)["bad/static/opset18/cpu/core"]
    assert bad.failure is not None
    assert "\n" not in bad.failure.message
    assert "step Reference" in (tmp_path / "run0" / bad.log).read_text()


@pytest.mark.parametrize("deed", ["segfault", "raise"])
def test_a_model_that_dies_in_float64_loses_nothing_else(tmp_path: Path, deed: str) -> None:
    planned = cells([replace(model("rough", do={"Oracle": deed}), oracle="always")])
    for record in sweep(tmp_path, planned, retries=1).records:
        assert record.verdict == "pass", record.message
        assert [action.mnemonic for action in record.actions][3:] == ["Check", "Oracle", "Run"]
        assert "SIGSEGV" in record.extra["no_oracle"] or "told to raise" in record.extra["no_oracle"]
        assert record.extra["float64"].startswith("none: ")


def test_float64_is_asked_once_for_all_files_of_a_model(tmp_path: Path) -> None:
    planned = cells([replace(model("m"), oracle="always")])
    first = sweep(tmp_path, planned)
    keys = {action.key for record in first.records for action in record.actions if action.mnemonic == "Oracle"}
    assert len(keys) == 1
    assert [record.verdict for record in first.records] == ["pass", "pass"]
    again = sweep(tmp_path, planned)
    assert {action.origin for record in again.records for action in record.actions} == {"cached"}


def test_a_stack_dump_of_a_segfault_is_in_the_failures_details(tmp_path: Path) -> None:
    result = sweep(tmp_path, cells([model("bad", do={"Reference": "segfault"})], opsets=(18,)))
    failure = result.records[0].failure
    assert failure is not None
    assert "acting.py" in failure.details
    assert "SIGSEGV" in failure.message


def test_much_output_is_no_failure(tmp_path: Path) -> None:
    result = sweep(tmp_path, cells([model("chatty", do={"Reference": "chat"})], opsets=(18,)))
    assert result.records[0].verdict == "pass"


def test_a_hanging_action_is_ended_at_its_limit_with_a_stack_dump(tmp_path: Path) -> None:
    deeds = ("hang", "hang_with_helper")
    slow = [replace(model(deed, do={"Translate@18": deed}), timeout_s=8.0) for deed in deeds]
    result = by_name(sweep(tmp_path, cells([*slow, model("quick")]), n_jobs=3))
    for deed in deeds:
        ended = result[f"{deed}/static/opset18/cpu/core"]
        assert outcome(ended) == ("fail", "timeout", "Timeout")
        assert ended.failure is not None
        assert "acting.py" in ended.failure.details  # the dump is written before the end
        assert f"Translate {deed}/static/opset18/core" in ended.failure.message
        assert result[f"{deed}/static/opset20/cpu/core"].verdict == "pass"
    assert result["quick/static/opset18/cpu/core"].verdict == "pass"


def test_an_action_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    result = sweep(tmp_path, cells([model("hoarder", do={"Capture": "leak"})]), memory_gb=0.15)
    assert {outcome(record) for record in result.records} == {("fail", "memory", "MemoryLimit")}


def test_a_crash_in_one_opset_leaves_the_others_of_its_group_alone(tmp_path: Path) -> None:
    planned = cells([model("m", do={"Translate@20": "segfault"})], opsets=(18, 20, 21))
    first = sweep(tmp_path, planned, n_jobs=1)
    assert [outcome(record)[:2] for record in first.records] == [("pass", ""), ("fail", "crash"), ("pass", "")]
    assert first.counts["rerun_failures"] == 1
    again = sweep(tmp_path, planned, n_jobs=1)
    assert [record.verdict for record in again.records] == ["pass", "fail", "pass"]
    # The crash is tried again, and captured again for it since programs are not stored; nothing else is.
    assert (again.counts["rerun_failures"], again.counts["ran"]) == (1, 1)


def test_a_failure_of_the_model_is_cached(tmp_path: Path) -> None:
    planned = cells([model("bad", do={"Capture": "raise"})])
    assert sweep(tmp_path, planned).counts["ran"] == 2
    again = sweep(tmp_path, planned)
    assert again.counts == {"ran": 0, "cached": 2, "rerun_failures": 0}
    assert {outcome(record) for record in again.records} == {("fail", "capture", "ValueError")}


def test_only_models_whose_graph_changed_are_translated_again(tmp_path: Path) -> None:
    sweep(tmp_path, cells([model("m", graph="g", note="before")]))
    result = sweep(tmp_path, cells([model("m", graph="g", note="after")]))
    origins = {action.mnemonic: action.origin for record in result.records for action in record.actions}
    assert origins["Capture"] == "ran"
    assert origins["Translate"] == origins["Check"] == "cached"


def test_a_data_file_that_the_model_read_is_part_of_what_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "vocabulary.txt"
    data.write_text("one")
    planned = cells([model("m", data=str(data))], opsets=(18,))
    sweep(tmp_path, planned)
    assert sweep(tmp_path, planned).counts["ran"] == 0
    data.write_text("two")
    changed = sweep(tmp_path, planned)
    assert {action.mnemonic: action.origin for action in changed.records[0].actions}["Reference"] == "ran"


def test_weights_lie_in_the_store_once_for_all_opsets(tmp_path: Path) -> None:
    result = sweep(tmp_path, cells([model("m")], opsets=(18, 20, 21)))
    folders = {Path(record.onnx.path).parent for record in result.records if record.onnx}
    assert len(folders) == 1
    weights = [path for path in (tmp_path / "store").rglob("*") if path.is_file() and path.stat().st_size == 700]
    assert len(weights) == 1
    assert weights[0].stat().st_nlink == 1


def test_a_plug_in_exporter_goes_from_module_to_file_in_one_action(tmp_path: Path) -> None:
    result = sweep(tmp_path, cells([model("m")], exporter=PLUGIN))
    assert [record.verdict for record in result.records] == ["pass", "pass"]
    steps = [action.mnemonic for action in result.records[0].actions]
    assert steps == ["Reference", "Translate", "Check", "Run"]


@pytest.mark.parametrize("told", [{"spoils": True}, {"doubts": True}])
def test_after_an_exporter_that_spoils_its_process_the_rest_is_done_in_another(
    tmp_path: Path, told: dict[str, Any]
) -> None:
    planned = [replace(cell, exporter=PLUGIN) for cell in cells([replace(model("m", **told), oracle="always")])]
    result = sweep(tmp_path, planned, n_jobs=1)
    assert [record.verdict for record in result.records] == ["pass", "pass"], result.records[0].message
    oracles = [action for record in result.records for action in record.actions if action.mnemonic == "Oracle"]
    assert [action.origin for action in oracles] == ["ran", "ran"]
    assert len({action.key for action in oracles}) == 1
    again = sweep(tmp_path, planned, n_jobs=1)
    assert {action.origin for record in again.records for action in record.actions} == {"cached"}


def test_what_is_doubtful_in_every_process_ends_the_cell(tmp_path: Path) -> None:
    planned = [
        replace(cell, exporter=PLUGIN) for cell in cells([replace(model("m", doubts="always"), oracle="always")])
    ]
    for record in sweep(tmp_path, planned, n_jobs=1).records:
        assert outcome(record) == ("fail", "environment", "Unsettled")


def test_a_crash_while_measuring_fails_that_cell_and_not_the_lane(tmp_path: Path) -> None:
    crashing = ProviderSpec("crashing", "onnxruntime", "CPUExecutionProvider", options={"other": "1"})
    planned = [*cells([model("m")], provider=crashing), *cells([model("m")], provider=CPU)]
    result = by_name(sweep(tmp_path, planned, measure=MeasureSpec()))
    assert outcome(result["m/static/opset18/crashing/core"]) == ("fail", "crash", "SIGSEGV")
    assert outcome(result["m/static/opset20/crashing/core"]) == ("fail", "crash", "SIGSEGV")
    good = result["m/static/opset20/cpu/core"]
    assert (good.verdict, good.eager_ms) == ("pass", 3.0)


def test_refresh_always_measures_again_and_nothing_else(tmp_path: Path) -> None:
    planned = cells([model("m")])
    sweep(tmp_path, planned, measure=MeasureSpec())
    again = sweep(tmp_path, planned, measure=MeasureSpec(refresh="always"))
    ran = {action.mnemonic for record in again.records for action in record.actions if action.origin == "ran"}
    assert ran == {"Measure", "Eager"}
    assert again.counts["ran"] == 3


def test_a_failure_of_eagers_latency_is_no_failure_of_the_cell(tmp_path: Path) -> None:
    result = sweep(tmp_path, cells([model("m", do={"Eager": "raise"})], opsets=(18,)), measure=MeasureSpec())
    record = result.records[0]
    assert (record.verdict, record.eager_ms) == ("pass", None)
    assert "told to raise" in record.extra["eager_failure"]


def test_a_provider_that_takes_small_models_skips_larger_ones(tmp_path: Path) -> None:
    small = ProviderSpec("small", "reference", max_parameters=6)
    record = sweep(tmp_path, cells([model("m")], opsets=(18,), provider=small)).records[0]
    assert (record.verdict, record.message) == (
        "skip",
        "provider 'small' takes at most 6 parameters; the model has 7",
    )


def test_few_units_are_split_by_opset_for_the_workers_and_captured_alike(tmp_path: Path) -> None:
    listener = Listener()
    result = sweep(tmp_path, cells([model("m")], opsets=(18, 20, 21)), listener=listener, n_jobs=2)
    assert sorted(listener.units) == [f"m/static/core/opset{opset}" for opset in (18, 20, 21)]
    assert {record.verdict for record in result.records} == {"pass"}


INTERRUPTED = """
import sys
from pathlib import Path
from sweeping import Listener, cells, model, sweep

class Telling(Listener):
    def record(self, record):
        print("record", record.cell.name, flush=True)

planned = cells([model("quick"), model("slow", do={"Reference": "hang_with_helper"})], opsets=(18,))
result = sweep(Path(sys.argv[1]), planned, listener=Telling(), n_jobs=int(sys.argv[2]))
print(result.interrupted, result.unfinished, [record.cell.model for record in result.records])
"""


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_ends_the_children_and_keeps_the_records(tmp_path: Path, n_jobs: int) -> None:
    with RunProcess(INTERRUPTED, tmp_path, n_jobs) as run:
        assert run.process.stdout is not None
        assert run.process.stdout.readline() == "record quick/static/opset18/cpu/core\n"
        log = tmp_path / "run0" / "logs" / "slow_static_core.log"
        wait_until(lambda: log.exists() and log.read_text())
        run.process.send_signal(signal.SIGINT)
        assert run.process.stdout.read() == "True 1 ['quick']\n"
        assert run.others() == []


def test_the_parent_imports_no_torch() -> None:
    code = "import sys, batch_export.runner.sweep; sys.exit('torch' in sys.modules or 'onnxruntime' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_a_store_without_room_for_a_units_scratch_fails_that_unit_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, given = Store.scratch, []

    def full_once(store: Store) -> Path:
        given.append(store)
        if len(given) == 1:
            raise StoreError("no space left")
        return scratch(store)

    monkeypatch.setattr(Store, "scratch", full_once)
    result = sweep(tmp_path, cells([model("a"), model("b")]), n_jobs=1)
    assert [outcome(record) for record in result.records] == [
        ("fail", "environment", "StoreError"),
        ("fail", "environment", "StoreError"),
        ("pass", "", ""),
        ("pass", "", ""),
    ]


def test_a_preload_that_fails_ends_the_run_with_the_reason_and_the_resume_command(tmp_path: Path) -> None:
    listener = Listener()
    with pytest.raises(RunError, match=r"forked from could not start(.|\n)*No module named 'no_such_module'"):
        sweep(tmp_path, cells([model("a")]), listener=listener, preload=("no_such_module",))
    assert listener.messages[-1].endswith("batch-export +sweep=fake")
    assert listener.ended


def test_cells_that_share_a_unit_find_each_others_way_when_capture_is_not_deterministic(tmp_path: Path) -> None:
    planned = cells([model("m", unstable=True)], opsets=(18, 20, 21, 22))
    result = sweep(tmp_path, planned, n_jobs=4)
    assert {record.verdict for record in result.records} == {"pass"}


def test_where_forking_is_unsafe_children_are_fresh_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "can_fork", lambda: False)
    planned = cells([model("good"), model("bad", do={"Translate@18": "segfault"})], opsets=(18, 20))
    result = by_name(sweep(tmp_path, planned))
    assert result["good/static/opset18/cpu/core"].verdict == "pass"
    assert result["bad/static/opset20/cpu/core"].verdict == "pass"
    assert outcome(result["bad/static/opset18/cpu/core"]) == ("fail", "crash", "SIGSEGV")
