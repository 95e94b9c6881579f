"""Sweeps on a dask cluster of real processes: the same records, deaths of workers, and workers that do not fit."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sweeping import Listener, by_name, cells, model, sweep
from test_resume import without_times

from batch_export.errors import RunError
from batch_export.spec import MeasureSpec

pytest.importorskip("distributed")
TESTS = Path(__file__).parent
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
    "OMP_NUM_THREADS": "1",
    "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "10 s",
}


@contextmanager
def cluster(workers: int, **environment: str) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and workers without nannies, as processes of their own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    common = {"env": {**ENVIRONMENT, **environment}, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [
        subprocess.Popen([*dask, "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"], **common)  # type: ignore[call-overload]
    ]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
    options = ["--no-dashboard", "--memory-limit", "0", "--death-timeout", "30"]
    processes += [
        subprocess.Popen([*worker, *options, "--name", f"w{index}"], cwd=TESTS, **common)  # type: ignore[call-overload]
        for index in range(workers)
    ]
    try:
        wait_for(address, workers)
        yield address, processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def wait_for(address: str, workers: int) -> None:
    import distributed

    deadline = time.monotonic() + 40
    while True:
        try:
            with distributed.Client(address, timeout=5, set_as_default=False) as client:
                client.wait_for_workers(workers, timeout=30)
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def test_a_cluster_of_three_of_which_one_is_killed_gives_the_records_of_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TESTS)  # as the workers: the same folders are importable
    killing = {"Translate@20": "segfault", "Reference": "slowly"}
    work = cells(
        [model("a", do={"Reference": "slowly"}), model("b", do=killing), *(model(name) for name in "cdef")],
        dynamic=("static", "full"),
    )
    alone = sweep(tmp_path / "alone", work, measure=MeasureSpec(), n_jobs=3)
    with cluster(3) as (address, processes):
        victim = processes[1]
        listener = Listener()

        def kill_one() -> None:
            while len(listener.units) < 3:
                time.sleep(0.02)
            time.sleep(1.0)
            victim.send_signal(signal.SIGKILL)

        threading.Thread(target=kill_one, daemon=True).start()
        together = sweep(
            tmp_path / "together",
            work,
            measure=MeasureSpec(),
            engine="dask",
            address=address,
            listener=listener,
        )
        assert victim.poll() == -signal.SIGKILL
    assert without_times(together.records) == without_times(alone.records)
    assert together.counts == alone.counts
    assert any("died while it worked on" in text and "goes elsewhere" in text for text in listener.messages)
    told = {(unit, where, mnemonic) for unit, where, mnemonic in listener.places}
    assert ("c/full/core", "c/full/opset20/cpu/core", "Translate") in told, "workers say where their children are"
    crashed = by_name(together)["b/full/opset20/cpu/core"]
    assert (crashed.stage, crashed.error_class) == ("crash", "SIGSEGV")
    measured = {record.extra.get("measured_on") for record in together.records if record.verdict == "pass"}
    assert measured == {socket.gethostname()}


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_scheduler_that_dies_leaves_a_run_that_goes_on_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(TESTS)
    work = cells([model("a"), model("b", do={"Reference": "slowly"})], opsets=(18,))
    with cluster(1) as (address, processes):
        listener = Listener()

        def kill_it() -> None:
            while not listener.records:
                time.sleep(0.02)
            processes[0].kill()

        threading.Thread(target=kill_it, daemon=True).start()
        with pytest.raises(RunError, match=r"dask cluster .* is gone or in trouble .*Next step: look at"):
            sweep(tmp_path, work, engine="dask", address=address, listener=listener, run="run")
    result = sweep(tmp_path, work, run="run")
    assert [record.verdict for record in result.records] == ["pass", "pass"]
