"""A run that was killed, interrupted or cut off goes on where it stopped, and ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sweeping import Listener, cells, model, sweep

from batch_export.errors import RunError
from batch_export.record import Cell, Failure, Record
from batch_export.runner.records_file import RecordsFile, is_taken
from batch_export.runner.surroundings import changes, read_surroundings
from batch_export.spec import MeasureSpec
from batch_export.toolchain import toolchain_for

TESTS = Path(__file__).parent
TIMES = ("seconds", "load_s")

KILLED = """
import sys
from pathlib import Path
from sweeping import cells, model, sweep
from batch_export.spec import MeasureSpec

planned = cells([model("a"), model("b", do={"Translate@20": "segfault"}), model("c")], dynamic=("static", "full"))
sweep(Path(sys.argv[1]), planned, measure=MeasureSpec(), run="run")
print("done", flush=True)
"""


def planned() -> list[Any]:
    return cells([model("a"), model("b", do={"Translate@20": "segfault"}), model("c")], dynamic=("static", "full"))


def without_times(records: Any) -> list[Any]:
    """Plain data of records without what a clock or a memory meter put there."""

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


def start(folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    return subprocess.Popen(
        [sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True, env=environment
    )


def open_below(folder: Path) -> list[str]:
    """Processes that have a file below the folder open."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                found += [
                    p.name
                    for h in (process / "fd").iterdir()
                    if os.readlink(h).startswith(str(folder))
                    for p in [process]
                ]
            except OSError:
                continue
    return found


@pytest.mark.parametrize("moment", [0.15, 0.5, 0.85])
def test_after_a_kill_the_rest_is_done_and_everything_is_as_in_an_undisturbed_run(
    tmp_path: Path, moment: float
) -> None:
    began = time.monotonic()
    undisturbed = sweep(tmp_path / "calm", planned(), measure=MeasureSpec(), run="run")
    whole_s = time.monotonic() - began
    with start(tmp_path / "killed") as process:
        time.sleep(0.6 + moment * whole_s * random.uniform(0.9, 1.1))
        process.kill()
    deadline = time.monotonic() + 10
    while open_below(tmp_path / "killed") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not open_below(tmp_path / "killed")
    resumed = sweep(tmp_path / "killed", planned(), measure=MeasureSpec(), run="run")
    assert without_times(resumed.records) == without_times(undisturbed.records)
    assert resumed.counts == undisturbed.counts
    again = sweep(tmp_path / "killed", planned(), measure=MeasureSpec(), run="run")
    assert again.counts == undisturbed.counts
    assert without_times(again.records) == without_times(undisturbed.records)


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
    code = KILLED.replace('print("done"', 'print("ended"')
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        path = tmp_path / "run" / "records.jsonl"
        deadline = time.monotonic() + 20
        while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.read() == "ended\n"
    assert not open_below(tmp_path)
