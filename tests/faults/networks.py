"""Faults of the network: a remote store that answers with errors, hangs or lies; dask processes that die."""

from __future__ import annotations

import functools
import http.server
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from sweeping import Listener, cells, model, sweep
from test_dask import TESTS, cluster

from batch_export.errors import RunError
from batch_export.record import Record
from batch_export.spec import StoreSpec
from batch_export.store import remote
from faults.scene import Fault, Outcome, blamed, disturbed, matrix, require_neighbours, undisturbed

AWS = {
    "AWS_ACCESS_KEY_ID": "an-id",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def faults() -> list[Fault]:
    """All faults of this family."""
    return [
        Fault("S3 answers 500", "network", functools.partial(_s3, "500")),
        Fault("S3 answers 403", "network", functools.partial(_s3, "403")),
        Fault("S3 does not answer", "network", functools.partial(_s3, "silence"), quick=False),
        Fault("nobody listens at S3's address", "network", functools.partial(_s3, "nobody")),
        Fault("a remote folder that disappears", "network", _folder_gone),
        Fault("a remote store with damaged files", "network", _lying),
        Fault("a dask worker is killed", "network", _dask_worker, quick=False),
        Fault("a cell kills one dask worker after another", "network", _dask_killer, quick=False),
        Fault("the dask scheduler is killed", "network", _dask_scheduler, quick=False),
    ]


class _Answering(http.server.BaseHTTPRequestHandler):
    """Answers everything with the server's status, or not at all."""

    def handle_any(self) -> None:
        status = self.server.status  # type: ignore[attr-defined]
        if not status:
            time.sleep(3600)
            return
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_HEAD = do_POST = handle_any  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def answering(status: int) -> Iterator[str]:
    """A server on loopback."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    server.daemon_threads = True
    server.status = status  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _s3(kind: str, folder: Path) -> Outcome:
    pytest.importorskip("s3fs")
    quick = {"config_kwargs": {"connect_timeout": 1, "read_timeout": 1, "retries": {"max_attempts": 1}}}
    with answering({"500": 500, "403": 403}.get(kind, 0)) as url:
        address = "http://127.0.0.1:9" if kind == "nobody" else url
        with (
            mock.patch.dict(os.environ, {**AWS, "AWS_ENDPOINT_URL": address}),
            mock.patch.object(remote, "_S3_OPTIONS", quick),
        ):
            bucket = f"s3://{kind}-{os.getpid()}/results"
            result, listener = disturbed(folder, matrix(), store=StoreSpec(remote=bucket))
    assert blamed(result) == "pass"
    warned = [text for text in listener.messages if "does not work" in text]
    assert len(warned) == 1
    assert "a-secret" not in warned[0]
    return Outcome("nobody; one warning", require_neighbours(folder, result))


def _folder_gone(folder: Path) -> Outcome:
    shared = folder / "shared"

    class Removing(Listener):
        def group_started(self, name: str) -> None:
            super().group_started(name)
            if len(self.units) == 3:
                shared.rename(folder / "elsewhere")
                shared.write_text("a file now")

    listener = Removing()
    result = sweep(folder / "disturbed", matrix(), run="run", listener=listener, store=StoreSpec(remote=str(shared)))
    assert blamed(result) == "pass"
    assert sum("does not work" in text for text in listener.messages) == 1
    return Outcome("nobody; one warning", require_neighbours(folder, result))


def _lying(folder: Path) -> Outcome:
    shared = folder / "shared"
    sweep(folder / "first", matrix(), run="run", store=StoreSpec(remote=str(shared)))
    victims = list((shared / "v1" / "blobs").glob("*/*"))
    for path in victims:
        path.write_bytes(path.read_bytes() + b"?")
    result, listener = disturbed(folder, matrix(), store=StoreSpec(remote=str(shared)))
    assert blamed(result) == "pass"
    assert any("content that does not match its digest" in text for text in listener.messages)
    facts = [(record.cell, record.runs, record.onnx) for record in result.records]
    assert facts == [(record.cell, record.runs, record.onnx) for record in undisturbed()]
    return Outcome(f"{len(victims)} files refused and made here", f"facts of {len(facts)} records identical")


@contextmanager
def _among_tests() -> Iterator[None]:
    before = os.getcwd()
    os.chdir(TESTS)
    try:
        yield
    finally:
        os.chdir(before)


def _dask_worker(folder: Path) -> Outcome:
    fatal = model("fatal", do={"Reference": "once_kill_dask_worker"}, marker=str(folder / "died"))
    work = [*matrix(do={"Translate@20": "segfault"}), *cells([fatal], opsets=(18,))]
    with _among_tests(), cluster(3) as (address, processes):
        result, _ = disturbed(folder, work, engine="dask", address=address)
        assert [process.poll() for process in processes].count(-signal.SIGKILL) == 1
        assert blamed(result) == "fail crash SIGSEGV, pass"
        return Outcome(blamed(result), require_neighbours(folder, result))


def _dask_killer(folder: Path) -> Outcome:
    work = matrix(do={"Translate@20": "kill_dask_worker"})
    with _among_tests(), cluster(6) as (address, _):
        result, _ = disturbed(folder, work, engine="dask", address=address)
        assert blamed(result) == "fail crash WorkerDeath, pass"
        return Outcome(blamed(result), require_neighbours(folder, result))


def _dask_scheduler(folder: Path) -> Outcome:
    work = matrix(do={"Reference": "once_hang"}, marker=str(folder / "hung"))
    with _among_tests():
        with cluster(2) as (address, processes):

            class Killing(Listener):
                def record(self, record: Record) -> None:
                    super().record(record)
                    processes[0].kill()

            listener = Killing()
            with pytest.raises(RunError, match="is gone or in trouble"):
                sweep(folder / "disturbed", work, run="run", listener=listener, engine="dask", address=address)
        result, _ = disturbed(folder, work)
        assert blamed(result) == "pass"
        return Outcome("the run stops and says why", "after resume " + require_neighbours(folder, result, logs=False))
