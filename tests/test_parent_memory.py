"""What the parent of a sweep keeps in memory: results that outgrow it, records on the disk, rows for the tables."""

from __future__ import annotations

import tempfile
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recording import cell, failed, passed, write_run
from sweeping import CPU, Listener, cells, model, sweep

from batch_export.action import ActionResult
from batch_export.digest import digest_bytes
from batch_export.record import Failure, Record
from batch_export.report import run_folder
from batch_export.report.compare import compare, for_comparison
from batch_export.report.formats import FORMATS, Subject
from batch_export.report.rows import row_of, rows_of
from batch_export.report.summary import Counts, complete, completed, summarise
from batch_export.runner.result_file import ResultMemory
from batch_export.runner.results import Results
from batch_export.runner.stored_records import StoredRecords
from batch_export.store import open_store


def made_up() -> list[Record]:
    """A few of every kind; facts that only the whole record has are in all of them."""
    finding = Failure("check", "StaticAxis", "an axis is fixed", "details of a finding", node="n", operator="Add")
    crash = replace(failed(cell("bert", opset=21), "crash", "SIGSEGV", "died"), log="logs/a.log")
    return [
        passed(cell("bert", opset=18)),
        replace(passed(cell("bert")), verdict="fail", stage="check", error_class="StaticAxis", findings=(finding,)),
        replace(crash, failure=Failure("crash", "SIGSEGV", "died", "a long stack", source="a.py:3")),
        replace(failed(cell("cnn")), verdict="xfail", extra={"reason": "a known bug", "parameters": 7}),
        Record(cell("gpt"), "skip", message="cuda is not installed"),
    ]


def result(name: str, **facts: Any) -> ActionResult:
    return ActionResult("Capture", digest_bytes(name.encode()), {"name": name, "hull": [[1.0, 2.0]], **facts})


def test_results_come_back_whether_they_are_in_memory_or_in_the_file(tmp_path: Path) -> None:
    memory = ResultMemory(tmp_path, most=3)
    made = [replace(result(f"r{index}"), failure=Failure("run", "E", "é\n")) for index in range(20)]
    for one in made:
        memory.put(one)
    assert [memory.get(one.key) for one in made] == made
    assert [memory.get(one.key) for one in reversed(made)] == made[::-1]
    assert memory.get(digest_bytes(b"unknown")) is None
    assert set(memory) == {one.key for one in made}
    assert len(memory._latest) == 3
    changed = replace(made[0], seconds=5.0)
    memory.put(changed)
    for one in made[1:]:
        memory.get(one.key)
    assert memory.get(changed.key) == changed
    assert list(tmp_path.iterdir()) == []  # the file has no name, so nothing is left behind
    memory.close()


def test_without_a_disk_the_results_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    memory = ResultMemory(tmp_path, most=3)
    made = [result(f"r{index}") for index in range(50)]
    for one in made:
        memory.put(one)
    assert [memory.get(one.key) for one in made] == made


def test_results_are_counted_although_they_are_not_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_export.runner.results.ResultMemory", lambda folder: ResultMemory(folder, most=2))
    results = Results(open_store(tmp_path), refresh="")
    for index in range(10):
        results.put(result(f"r{index}"), "cached" if index % 2 else "ran")
    crashed = replace(result("r0"), failure=Failure("crash", "SIGSEGV", ""))
    results.put(crashed, "ran")
    assert results.counts() == {"ran": 4, "cached": 5, "rerun_failures": 1}
    assert next(found for found, _ in results.known()) == crashed
    assert len(results.known()) == 10
    results.close()


def test_records_on_the_disk_are_a_sequence(tmp_path: Path) -> None:
    records = made_up()
    stored = run_folder.write_records(tmp_path, records)
    assert isinstance(stored, StoredRecords)
    assert list(stored) == records
    assert list(stored) == records, "a second pass"
    assert stored == records
    assert stored != records[1:]
    assert stored[1] == records[1]
    assert stored[-1] == records[-1]
    assert stored[:2] == tuple(records[:2])
    assert len(stored) == len(records)
    assert list(StoredRecords(tmp_path / "none", [])) == []
    assert rows_of(stored) == tuple(map(row_of, records))
    assert rows_of(records) is records


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "parquet"])
def test_a_report_of_records_on_the_disk_is_that_of_records_in_memory(tmp_path: Path, name: str) -> None:
    records, folder = made_up(), tmp_path / "outputs" / "2026-11-01" / "01-00-00"
    write_run(folder, records)
    stored = run_folder.write_records(folder, records)
    summary = summarise(records, Counts())
    assert summarise(rows_of(stored), Counts()) == summary
    here, there = (FORMATS[name].render(Subject(folder, kept, summary)) for kept in (records, stored))
    assert here == there


def test_a_comparison_needs_no_runs() -> None:
    records = made_up()
    other = [replace(record, max_abs=record.max_abs and record.max_abs * 400) for record in records]
    assert compare(map(for_comparison, records), map(for_comparison, other)) == compare(records, other)
    assert compare(records, other).changes


def test_cells_without_a_record_take_their_place_one_by_one() -> None:
    planned = cells([model("a"), model("b")])
    planned.append(replace(planned[0], cell=replace(planned[0].cell, opset=25), skip="too new"))
    for left_out in range(5):
        records = [Record(item.cell, "pass") for index, item in enumerate(planned[:4]) if index != left_out]
        assert tuple(completed(planned, records)) == complete(planned, records)


@pytest.mark.ops
def test_a_runs_memory_hardly_grows_with_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_export.runner.results.ResultMemory", lambda folder: ResultMemory(folder, most=20))
    provider = replace(CPU, name="long_facts")

    def grown(models: int) -> int:
        work = cells([model(f"m{index}") for index in range(models)], range(1, 31), provider=provider)
        first = sweep(tmp_path / f"{models}", work, listener=Listener(remembers=False), run="cold")
        assert {record.verdict for record in first.records} == {"pass"}
        peaks = []  # what is imported once, or allocated by a thread that another test left, is not the sweep's
        for run in ("warm", "again"):
            tracemalloc.start()
            try:
                warm = sweep(tmp_path / f"{models}", work, listener=Listener(remembers=False), run=run)
                assert warm.counts["cached"] == models * (2 + 3 * 30)
                peaks.append(tracemalloc.get_traced_memory()[1])
            finally:
                tracemalloc.stop()
        return min(peaks)

    small, large = grown(1), grown(7)
    record = len(
        msgspec.json.encode(next(iter(sweep(tmp_path / "2", cells([model("m0")], (1,), provider=provider)).records)))
    )
    assert (large - small) / 180 < record / 2, "a cell costs the parent less than half of its line"
