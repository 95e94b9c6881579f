"""Sweeps on a dask cluster of real processes: the same records, deaths of workers, and workers that do not fit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from run_processes import wait_until
from sweeping import Listener, by_name, cells, model, sweep
from test_resume import without_times

from batch_export.errors import RunError
from batch_export.record import Record
from batch_export.runtime.measuring import MeasureSpec

pytest.importorskip("distributed")
TESTS = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
    "OMP_NUM_THREADS": "1",
}


@contextmanager
def cluster(workers: int, **environment: str) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and workers without nannies, as processes of their own."""
    folder = tempfile.TemporaryDirectory(prefix="cluster-")
    found = ["--scheduler-file", str(Path(folder.name) / "scheduler.json")]  # the scheduler chooses the port
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    common = {"env": {**ENVIRONMENT, **environment}, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [
        subprocess.Popen([*dask, *found, "--host", "127.0.0.1", "--port", "0", "--no-dashboard"], **common)  # type: ignore[call-overload]
    ]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", *found, "--nthreads", "1", "--no-nanny"]
    options = ["--no-dashboard", "--memory-limit", "0", "--death-timeout", "300"]
    processes += [
        subprocess.Popen([*worker, *options, "--name", f"w{index}"], cwd=TESTS, **common)  # type: ignore[call-overload]
        for index in range(workers)
    ]
    try:
        yield address_of(Path(found[1]), workers), processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
        folder.cleanup()


def address_of(file: Path, workers: int) -> str:
    """Returns the address of the scheduler once it has that many workers."""
    import distributed

    wait_until(file.exists)
    with distributed.Client(scheduler_file=str(file), timeout=300, set_as_default=False) as client:
        client.wait_for_workers(workers, timeout=300)
        return str(client.scheduler.address)


def test_a_cluster_of_three_of_which_one_is_killed_gives_the_records_of_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TESTS)  # as the workers: the same folders are importable
    died = tmp_path / "died-Reference"
    fatal = model("a", do={"Reference": "once_kill_dask_worker"}, marker=str(tmp_path / "died"))
    work = cells(
        [fatal, model("b", do={"Translate@20": "segfault"}), *(model(name) for name in "cdef")],
        dynamic=("static", "full"),
    )
    died.touch()
    alone = sweep(tmp_path / "alone", work, measure=MeasureSpec(), n_jobs=3)
    with cluster(3) as (address, processes):
        died.unlink()
        listener = Listener()
        together = sweep(
            tmp_path / "together",
            work,
            measure=MeasureSpec(),
            engine="dask",
            address=address,
            listener=listener,
        )
        assert [process.poll() for process in processes].count(-signal.SIGKILL) == 1
    assert without_times(together.records) == without_times(alone.records)
    assert together.counts == alone.counts
    assert any("died while it worked on" in text and "goes elsewhere" in text for text in listener.messages)
    told = {(unit, where, mnemonic) for unit, where, mnemonic in listener.places}
    assert ("c/full/core", "c/full/opset20/cpu/core", "Translate") in told, "workers say where their children are"
    crashed = by_name(together)["b/full/opset20/cpu/core"]
    assert (crashed.stage, crashed.error_class) == ("crash", "SIGSEGV")
    measured = {record.extra.get("measured_on") for record in together.records if record.verdict == "pass"}
    assert measured == {socket.gethostname()}


@pytest.mark.ops
def test_only_what_kills_worker_after_worker_is_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TESTS)
    work = cells([model("a"), model("killer", do={"Translate@20": "kill_dask_worker"}), model("c")])
    with cluster(4) as (address, _):
        listener = Listener()
        result = by_name(sweep(tmp_path, work, engine="dask", address=address, listener=listener))
    killer = result.pop("killer/static/opset20/cpu/core")
    assert (killer.verdict, killer.stage, killer.error_class) == ("fail", "crash", "WorkerDeath")
    assert "dask workers died while they worked on this cell" in killer.message
    assert {record.verdict for record in result.values()} == {"pass"}


def test_a_worker_with_another_version_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TESTS)
    other = tmp_path / "site"
    (other / "numpy-0.1.dist-info").mkdir(parents=True)
    (other / "numpy-0.1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.1\n")
    path = os.pathsep.join([str(other), ENVIRONMENT["PYTHONPATH"]])
    with (
        cluster(1, PYTHONPATH=path) as (address, _),
        pytest.raises(RunError, match=r"dask worker tcp://.* differs from the client: version of numpy .* -> 0\.1"),
    ):
        sweep(tmp_path / "run", cells([model("a")]), engine="dask", address=address)


def test_a_scheduler_that_does_not_answer_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batch_export.runner.dask_engine._CONNECT_S", 1)
    with pytest.raises(RunError, match=r"no dask scheduler answers at tcp://127\.0\.0\.1:9 .*Next step: start one"):
        sweep(tmp_path, cells([model("a")]), engine="dask", address="tcp://127.0.0.1:9")


@pytest.mark.ops
def test_a_scheduler_that_dies_leaves_a_run_that_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TESTS)
    hanging = model("b", do={"Reference": "once_hang"}, marker=str(tmp_path / "hung"))
    work = cells([model("a"), hanging], opsets=(18,))
    with cluster(1) as (address, processes):

        class Killing(Listener):
            def record(self, record: Record) -> None:
                super().record(record)
                processes[0].kill()

        listener = Killing()
        with pytest.raises(RunError, match=r"dask cluster .* is gone or in trouble .*Next step: look at"):
            sweep(tmp_path, work, engine="dask", address=address, listener=listener, run="run")
    result = sweep(tmp_path, work, run="run")
    assert [record.verdict for record in result.records] == ["pass", "pass"]
