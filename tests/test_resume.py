"""A run that was killed, interrupted or cut off goes on where it stopped, and ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from run_processes import RunProcess, wait_until
from sweeping import STAGES, Listener, cells, model, sweep

from batch_export.errors import RunError
from batch_export.record import Cell, Failure, Record
from batch_export.runner.records_file import RecordsFile, is_taken
from batch_export.runner.surroundings import changes, read_surroundings
from batch_export.runner.sweep import RunResult
from batch_export.runtime.measuring import MeasureSpec
from batch_export.sources.toolchain import toolchain_for

TIMES = ("seconds", "load_s", "seen")
"""What another run has otherwise: a child that is new imports more files than one that has run an action before."""

KILLED = """
import sys
from pathlib import Path
from sweeping import cells, model, sweep
from batch_export.runtime.measuring import MeasureSpec

planned = cells([model("a"), model("b", do={"Translate@20": "segfault"}), model("c")], dynamic=("static", "full"))
print("begins", flush=True)
sweep(Path(sys.argv[1]), planned, measure=MeasureSpec(), run="run")
"""
ENDLESS = """
import sys
from pathlib import Path
from sweeping import cells, model, sweep

result = sweep(Path(sys.argv[1]), cells([model("a"), model("b", do={"Reference": "hang"})]), run="run")
print("interrupted", result.interrupted)
"""
MOMENTS = 6


def planned() -> list[Any]:
    return cells([model("a"), model("b", do={"Translate@20": "segfault"}), model("c")], dynamic=("static", "full"))


def without_times(records: Any) -> list[Any]:
    """Plain data of records without what a clock, a memory meter or the order of children put there."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in TIMES}
        return [strip(item) for item in value] if isinstance(value, list) else value

    plain = [strip(msgspec.json.decode(msgspec.json.encode(record))) for record in records]
    for record in plain:
        if record["failure"]:  # the stack dump and the peak of a crash differ from time to time
            record["failure"]["details"] = record["failure"]["message"] = ""
            record["message"] = ""
    return plain


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, float]:
    """A run that nobody kills, and how long it took."""
    began = time.monotonic()
    result = sweep(tmp_path_factory.mktemp("calm"), planned(), measure=MeasureSpec(), run="run")
    return result, time.monotonic() - began


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_after_a_kill_the_rest_is_done_and_everything_is_as_in_an_undisturbed_run(
    tmp_path: Path, moment: int, undisturbed: tuple[RunResult, float]
) -> None:
    """The same holds for any moment, be it before the first child or after the last; nobody waits after the kill."""
    whole, whole_s = undisturbed
    with RunProcess(KILLED, tmp_path) as run:
        assert run.process.stdout is not None
        run.process.stdout.readline()
        time.sleep(whole_s * (moment + random.random()) / MOMENTS)
        run.kill()
        resumed = sweep(tmp_path, planned(), measure=MeasureSpec(), run="run")
        assert run.others() == []
    assert without_times(resumed.records) == without_times(whole.records)
    assert resumed.counts == whole.counts
    again = sweep(tmp_path, planned(), measure=MeasureSpec(), run="run")
    assert again.counts == whole.counts
    assert without_times(again.records) == without_times(whole.records)


def test_records_that_are_there_are_neither_looked_up_nor_executed_again(tmp_path: Path) -> None:
    work = cells([model("a"), model("b")])
    sweep(tmp_path, work, run="run")
    path = tmp_path / "run" / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:50])  # the last line is torn
    listener = Listener()
    result = sweep(tmp_path, work, run="run", listener=listener)
    assert [record.verdict for record in result.records] == ["pass"] * 4
    assert listener.messages[0] == "3 of 4 cells have their records already"
    assert len(path.read_bytes().splitlines()) == 4
    assert len(listener.records) == 4


def test_a_failure_of_the_environment_is_done_again_when_a_run_goes_on(tmp_path: Path) -> None:
    work = cells([model("a")], opsets=(18,))
    sweep(tmp_path, work, run="run")
    with RecordsFile(tmp_path / "run") as file:
        failure = Failure("environment", "StoreError", "the disk is full")
        file.write(Record(work[0].cell, "fail", stage="environment", failure=failure))
    result = sweep(tmp_path, work, run="run")
    assert [record.verdict for record in result.records] == ["pass"]


def test_what_changed_since_the_run_began_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = cells([model("a")], opsets=(18,))
    sweep(tmp_path, work, run="run")
    path = tmp_path / "run" / "environment.json"
    stored = read_surroundings(tmp_path / "run")
    assert stored is not None
    older = replace(stored.toolchain, versions={**stored.toolchain.versions, "torch": "1.0"})
    path.write_bytes(msgspec.json.encode(replace(stored, toolchain=older)))
    listener = Listener()
    sweep(tmp_path, work, run="run", listener=listener)
    assert any("since this run began there changed: version of torch 1.0 ->" in text for text in listener.messages)


def test_records_of_what_was_another_file_are_kept_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("1")
    text = "def one(): return open('one.txt').read()\ndef two(): return open('two.txt').read()\n"
    (tmp_path / "reading.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.path.dirname(__file__)]))
    models = [replace(model(name), target=f"reading.{name}", arguments={}) for name in ("one", "two")]
    work = cells(models, opsets=(18,))
    stages = {**STAGES, "Reference": "fake_stages.built"}
    first = sweep(tmp_path / "runs", work, stages=stages, run="run")
    listener = Listener()
    sweep(tmp_path / "runs", work, stages=stages, run="run", listener=listener)
    assert not any("has changed since" in text for text in listener.messages)
    (tmp_path / "one.txt").write_text("2")
    again = sweep(tmp_path / "runs", work, stages=stages, run="run", listener=listener)
    assert again.records == first.records
    told = next(text for text in listener.messages if "has changed since" in text)
    assert told.startswith(
        "1 kept record stands on what has changed since: one/static/opset18/cpu/core (file one.txt has"
    )
    assert "Next step: run the sweep anew" in told
    sweep(tmp_path / "runs", work, stages=stages, run="other")
    listener.messages.clear()
    sweep(tmp_path / "runs", work, stages=stages, run="run", listener=listener)
    assert any("another run has made its results again" in text for text in listener.messages)


def test_toolchains_are_compared_name_by_name() -> None:
    before = toolchain_for([], [])
    now = replace(before, own={**before.own, "Run": "other"}, host={**before.host, "cores": "99"})
    assert changes(before, before) == []
    found = changes(before, now)
    assert found[0] == "our own sources of Run"
    assert found[1].startswith("host: cores ")
    assert found[1].endswith("-> 99")


def test_one_process_at_a_time_works_on_a_run(tmp_path: Path) -> None:
    assert not is_taken(tmp_path)
    with RecordsFile(tmp_path):
        assert is_taken(tmp_path)
        with pytest.raises(RunError, match=r"another process is working on the run in .*Next step: wait"):
            RecordsFile(tmp_path)
    assert not is_taken(tmp_path)


@pytest.mark.parametrize("tail", [b'{"cell": {"mod', b"\0" * 100, b"\xff\xfe", b'{"verdict": 1}', b"[" * 100_000])
def test_what_a_power_failure_left_at_the_end_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    record = Record(Cell("m", "static", 18, "cpu", "core"), "pass")
    for ending in (b"", b"\n"):
        with RecordsFile(tmp_path) as file:
            file.write(record)
        with (tmp_path / "records.jsonl").open("ab") as stream:
            stream.write(tail + ending)
        with RecordsFile(tmp_path) as file:
            assert file.found
            assert all(found == record for found in file.found)


def test_a_line_that_does_not_fit_on_the_disk_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record(Cell("m", "static", 18, "cpu", "core"), "pass")
    with RecordsFile(tmp_path) as file:
        file.write(record)
        size = (tmp_path / "records.jsonl").stat().st_size
        os.truncate(tmp_path / "records.jsonl", size)

        class Full:
            """Takes ten bytes, then none."""

            def __init__(self, stream: Any) -> None:
                self.stream = stream

            def write(self, data: bytes) -> int:
                if len(data) > 10 and not getattr(self, "full", False):
                    self.full = True
                    return int(self.stream.write(data[:10]))
                raise OSError(28, "No space left on device")

            def __getattr__(self, name: str) -> Any:
                return getattr(self.stream, name)

        monkeypatch.setattr(file, "_stream", Full(file._stream))
        with pytest.raises(
            RunError, match=r"No space left on device.*Next step: free space there, then `batch-export re"
        ):
            file.write(record)
    assert (tmp_path / "records.jsonl").stat().st_size == size


def test_sigterm_is_an_interruption(tmp_path: Path) -> None:
    with RunProcess(ENDLESS, tmp_path) as run:
        path = tmp_path / "run" / "records.jsonl"
        wait_until(lambda: path.exists() and path.stat().st_size)
        run.process.send_signal(signal.SIGTERM)
        assert run.process.stdout is not None
        assert run.process.stdout.read() == "interrupted True\n"
        assert run.others() == []


def test_what_a_killed_run_was_just_starting_is_waited_for(tmp_path: Path) -> None:
    """Between its fork and its exec a process has the killed run's records open, and with them their lock."""
    with RecordsFile(tmp_path) as records:
        copied = os.dup(records._stream.fileno())
    threading.Timer(0.3, os.close, [copied]).start()
    with RecordsFile(tmp_path) as records:
        assert not records.found
