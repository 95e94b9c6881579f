"""A store behind the store: a shared folder, and an S3 server on loopback; verified, degraded, and without secrets."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_processes import PATIENCE_S
from sweeping import Listener, cells, model, sweep
from test_store import action, put_result

from batch_export.action import Action, ActionResult
from batch_export.config.run import refuse_secrets
from batch_export.errors import StoreError, UsageError
from batch_export.runtime.measuring import MeasureSpec
from batch_export.spec import StoreSpec
from batch_export.store import open_store
from batch_export.store.remote import FolderBackend, Remote, open_remote
from benchmarks.remote import serve

SECRET = "a-secret-that-must-not-be-written"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URL of a bucket on a real S3 server of this process."""
    import logging

    moto = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
            patch.delenv(name, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", "an-id")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        import boto3

        boto3.client("s3").create_bucket(Bucket="results")
        yield "s3://results/team"
    server.stop()


@pytest.fixture(params=["folder", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shared") if request.param == "folder" else f"memory://store-{tmp_path.name}"


def test_what_one_store_made_another_has(url: str, tmp_path: Path) -> None:
    first = open_store(tmp_path / "one", [], StoreSpec(remote=url))
    result = put_result(first, "a", tmp_path)
    second = open_store(tmp_path / "two", [], StoreSpec(remote=url))
    assert second.find(result.key, remote=False) is None
    assert second.lookup(result.key) == result
    assert second.find(result.key, remote=False) is not None
    assert result.model is not None
    assert second.open_model(result.model).read_text() == "onnx a"
    assert second.lookup(action("b").key) is None


@pytest.mark.parametrize("mnemonic", ["Measure", "Eager"])
def test_latencies_never_leave_their_store(url: str, tmp_path: Path, mnemonic: str) -> None:
    done = Action(mnemonic, (("a", "b"),))  # type: ignore[arg-type]
    open_store(tmp_path / "one", [], StoreSpec(remote=url)).record(done, ActionResult(done.mnemonic, done.key))
    assert open_store(tmp_path / "two", [], StoreSpec(remote=url)).lookup(done.key) is None


@pytest.mark.parametrize("what", ["blob", "entry", "other entry", "missing blob"])
def test_an_entry_from_elsewhere_that_is_not_what_it_says_is_no_result(tmp_path: Path, what: str) -> None:
    shared = tmp_path / "shared"
    result = put_result(open_store(tmp_path / "one", [], StoreSpec(remote=str(shared))), "a", tmp_path)
    other = put_result(open_store(tmp_path / "one", [], StoreSpec(remote=str(shared))), "b", tmp_path)
    entry = shared / "v1" / "actions" / result.key[:2] / f"{result.key}.json"
    digest = result.artifacts["evidence"]
    blob = shared / "v1" / "blobs" / digest[:2] / digest
    if what == "blob":
        blob.write_text("evil")
    elif what == "missing blob":
        blob.unlink()
    elif what == "entry":
        entry.write_bytes(entry.read_bytes().replace(b"evidence", b"evidencf"))
    else:
        shutil.copyfile(shared / "v1" / "actions" / other.key[:2] / f"{other.key}.json", entry)
    said: list[str] = []
    second = open_store(tmp_path / "two", [], StoreSpec(remote=str(shared)), warn=said.append)
    assert second.lookup(result.key) is None
    assert second.lookup(other.key) == other
    assert bool(said) == (what != "missing blob")
    assert all("is not used" in text for text in said)
    assert not list((second.root / "tmp").iterdir())


class Failing:
    """A backend that does not work."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def read(self, name: str) -> bytes:
        self.calls += 1
        raise self.error

    def download(self, name: str, path: Path) -> None:
        raise self.error

    def exists(self, name: str) -> bool:
        raise self.error

    def write(self, name: str, data: bytes) -> None:
        raise self.error

    def upload(self, name: str, path: Path) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error", [TimeoutError("slow"), PermissionError(13, "denied"), RuntimeError(f"500 {SECRET}"), ValueError("odd")]
)
def test_a_remote_that_fails_is_left_alone_after_one_warning_without_details(error: Exception) -> None:
    said: list[str] = []
    backend = Failing(error)
    remote = Remote("s3://b", lambda: backend, said.append)
    assert [remote.read("x"), remote.read("x")] == [None, None]
    assert not remote.upload("x", Path("y"))
    assert backend.calls == 1
    assert len(said) == 1
    assert f"({type(error).__name__}" in said[0]
    assert "goes on with the local store alone. Next step: `batch-export doctor`" in said[0]
    assert SECRET not in said[0]


@pytest.mark.parametrize("url", ["s3://id:secret@bucket/x", "s3://id@bucket", "https://host/path?token=x"])
def test_secrets_in_the_address_are_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"must hold no user, password or query.*Next step: give the credentials"):
        refuse_secrets(url)


def test_an_address_that_nothing_opens_is_an_error_that_says_so() -> None:
    refuse_secrets("s3://bucket/folder")
    with pytest.raises(UsageError, match="fsspec opens no URLs of the kind 'nonsense'"):
        open_remote("nonsense://x", print)


def test_a_sweep_on_a_fresh_machine_executes_nothing_but_latencies(s3: str, tmp_path: Path) -> None:
    planned = cells([model("a"), model("b")])
    first = sweep(tmp_path / "one", planned, measure=MeasureSpec(), store=StoreSpec(remote=s3))
    assert [record.verdict for record in first.records] == ["pass"] * 4
    listener = Listener()
    second = sweep(tmp_path / "two", planned, measure=MeasureSpec(), store=StoreSpec(remote=s3), listener=listener)
    ran = {a.mnemonic for record in second.records for a in record.actions if a.origin == "ran"}
    assert ran == {"Measure", "Eager"}
    assert [(r.cell, r.runs) for r in first.records] == [(r.cell, r.runs) for r in second.records]
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_a_sweep_goes_on_when_the_remote_answers_with_errors(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing listens there
    listener = Listener()
    result = sweep(tmp_path, cells([model("c"), model("d")]), store=StoreSpec(remote=s3), listener=listener)
    assert [record.verdict for record in result.records] == ["pass"] * 4
    assert sum("does not work" in text for text in listener.messages) == 1
    assert open_store(tmp_path / "store").info().actions["Run"] == 4


def test_a_remote_folder_that_cannot_be_made_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    listener = Listener()
    result = sweep(
        tmp_path, cells([model("a")]), store=StoreSpec(remote=str(tmp_path / "file" / "x")), listener=listener
    )
    assert [record.verdict for record in result.records] == ["pass"] * 2
    assert sum("does not work" in text for text in listener.messages) == 1


def test_leaving_entries_out_of_reach_by_name_is_impossible(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    done = action("evil")
    evil = ActionResult("Translate", done.key, artifacts={"x": "../../../../etc/passwd"})
    with pytest.raises(StoreError):
        store.record(done, evil)
    assert os.listdir(store.actions) == []


def test_what_a_run_needs_is_asked_for_once_and_many_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = StoreSpec(remote=str(tmp_path / "shared"))
    known = cells([model(name) for name in "abcdefgh"])
    sweep(tmp_path / "one", known, store=shared)
    asked: list[str] = []
    together: list[int] = []
    inside: list[str] = []
    enough = threading.Event()
    read = FolderBackend.read

    def watched(backend: FolderBackend, name: str) -> bytes:
        asked.append(name)
        inside.append(name)
        together.append(len(inside))
        if len(inside) > 4:
            enough.set()
        enough.wait(PATIENCE_S)
        try:
            return read(backend, name)
        finally:
            inside.remove(name)

    monkeypatch.setattr(FolderBackend, "read", watched)
    result = sweep(tmp_path / "two", [*known, *cells([model("new")])], store=shared)
    assert result.counts == {"ran": 8, "cached": 8 * 8, "rerun_failures": 0}
    assert len(asked) == len(set(asked)) == 8 * 8 + 1, "and of the new model's actions the first one, by this process"
    assert max(together) > 4


def test_an_s3_server_gets_no_more_requests_than_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("moto.server")
    s3fs = pytest.importorskip("s3fs")
    import boto3

    s3fs.S3FileSystem.clear_instance_cache()  # those of other tests talk to another server
    app, address = serve(0.0)
    for name, value in (("ACCESS_KEY_ID", "an-id"), ("SECRET_ACCESS_KEY", SECRET), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    boto3.client("s3").create_bucket(Bucket="counted")
    remote = StoreSpec(remote="s3://counted/a")
    first = open_store(tmp_path / "one", [], remote)
    result = put_result(first, "a", tmp_path)
    app.counts.clear()
    second = open_store(tmp_path / "two", [], remote)
    missing = action("b").key
    assert second.fetch([result.key, missing]) == {result.key}
    files = len({digest for digest, _ in second.content.files_of(result)})
    assert app.counts == {"GET 200": 1 + files, "GET 404": 1}
    app.counts.clear()
    assert first.fetch([]) == set()
    put_result(first, "c", tmp_path)
    assert set(app.counts) == {"PUT 200"}, "small files are sent without asking"
    assert open_store(tmp_path / "three").fetch([result.key]) == set()
    s3fs.S3FileSystem.clear_instance_cache()
