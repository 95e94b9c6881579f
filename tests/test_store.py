"""The store: content and results in and out; under several writers, after a kill, when full, when collected."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batch_export.action import Action, ActionResult
from batch_export.digest import digest_bytes
from batch_export.errors import StoreError, UsageError
from batch_export.record import UNCACHED_STAGES, Failure
from batch_export.store import Store, files, open_store
from batch_export.store.bundle import export_tar
from batch_export.store.collection import collect
from batch_export.store.locks import locked

ROOT = Path(__file__).parents[1]
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store", [tmp_path])


def action(name: str) -> Action:
    return Action("Translate", (("name", name),), f"Translate {name}")


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def put_result(store: Store, name: str, folder: Path, weights: str = "w" * 100) -> ActionResult:
    digest = store.put_bytes(weights.encode())
    model = store.put_model(written(folder, f"{name}.onnx", f"onnx {name}"), {"weights.bin": digest})
    evidence = store.put_bytes(f"evidence {name}".encode())
    done = action(name)
    result = ActionResult("Translate", done.key, {"name": name}, {"weights": digest, "evidence": evidence}, model)
    store.record(done, result)
    return result


def test_content_comes_back_by_digest(store: Store, tmp_path: Path) -> None:
    digest = store.put_file(written(tmp_path, "file", "content"))
    assert digest == digest_bytes(b"content") == store.put_bytes(b"content")
    assert store.blob_path(digest).read_text() == "content"
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_what_is_a_link_to_a_file_of_somebody_else_is_stored_as_a_copy(
    store: Store, tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    sources = [written(tmp_path, name, name) for name in ("onnx", "data", "blob")]
    links = [tmp_path / f"{source.name}.link" for source in sources]
    for source, name in zip(sources, links, strict=True):
        link(source, name)
    model = store.put_model(links[0], {"weights.bin": links[1]})
    blob = store.put_file(links[2])
    for source in sources:
        assert source.read_text() == source.name
        source.write_text("another")
    path = store.open_model(model)
    stored = [path, path.parent / "weights.bin", store.blob_path(blob)]
    assert [file.read_text() for file in stored] == ["onnx", "data", "blob"]
    assert not any(file.is_symlink() or file.stat().st_nlink > 1 for file in stored)
    assert not any(name.exists() for name in links)


def test_unknown_content_is_an_error_that_says_what_to_do(store: Store) -> None:
    with pytest.raises(StoreError, match=r"has no file 0+\. Next step: run again"):
        store.blob_path("0" * 64)


def test_a_result_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    result = put_result(store, "a", tmp_path)
    assert store.lookup(result.key) == result
    assert store.lookup(action("b").key) is None


def test_models_of_one_group_lie_beside_one_copy_of_the_weights_without_links(store: Store, tmp_path: Path) -> None:
    first, second = (put_result(store, name, tmp_path) for name in "ab")
    assert first.model is not None
    assert second.model is not None
    paths = [store.model_path(first.model), store.model_path(second.model)]
    assert paths[0].parent == paths[1].parent
    weights = paths[0].parent / "weights.bin"
    assert not weights.is_symlink()
    assert weights.stat().st_nlink == 1
    assert store.blob_path(digest_bytes(b"w" * 100)) == weights
    assert sum(1 for path in store.root.rglob("*") if path.is_file() and path.stat().st_size == 100) == 1


def test_the_same_data_in_another_folder_is_a_copy(store: Store, tmp_path: Path) -> None:
    weights = store.put_bytes(b"w")
    first = store.put_model(written(tmp_path, "a", "a"), {"weights.bin": weights})
    second = store.put_model(written(tmp_path, "b", "b"), {"other.bin": weights})
    third = store.put_model(written(tmp_path, "c", "c"), {"weights.bin": written(tmp_path, "w", "w")})
    assert (store.model_path(second).parent / "other.bin").read_text() == "w"
    assert store.model_path(third).parent == store.model_path(first).parent


@pytest.mark.parametrize("name", ["../weights", "a/b", "", "model.onnx"])
def test_external_data_elsewhere_is_refused(store: Store, tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="plain file name beside the ONNX file"):
        store.put_model(written(tmp_path, "a", "a"), {name: written(tmp_path, "w", "w")})


@pytest.mark.parametrize("what", ["evidence", "weights", "onnx", "truncated"])
def test_a_result_whose_files_are_gone_is_a_miss(store: Store, tmp_path: Path, what: str) -> None:
    result = put_result(store, "a", tmp_path)
    assert result.model is not None
    if what == "onnx":
        store.model_path(result.model).unlink()
    elif what == "truncated":
        store.blob_path(result.artifacts["evidence"]).write_text("")
    else:
        store.blob_path(result.artifacts[what]).unlink()
    assert store.lookup(result.key) is None


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format": 99}', b"\xff"])
def test_a_damaged_entry_is_a_miss(store: Store, tmp_path: Path, damage: bytes) -> None:
    result = put_result(store, "a", tmp_path)
    store.entry_path(result.key).write_bytes(damage)
    assert store.lookup(result.key) is None


def test_a_changed_or_missing_source_is_a_miss_and_the_old_one_a_hit_again(store: Store, tmp_path: Path) -> None:
    source = written(tmp_path, "model.py", "one")
    done = action("a")
    store.record(done, ActionResult("Translate", done.key, sources=(("model.py", digest_bytes(b"one")),)))
    assert store.lookup(done.key) is not None
    source.write_text("another")
    assert store.lookup(done.key) is None
    source.unlink()
    assert store.lookup(done.key) is None
    source.write_text("one")
    assert store.lookup(done.key) is not None


@pytest.mark.parametrize("stage", sorted(UNCACHED_STAGES))
def test_failures_of_the_machine_are_never_cached(store: Store, stage: Any) -> None:
    done = action("a")
    with pytest.raises(StoreError, match="never cached"):
        store.record(done, ActionResult("Translate", done.key, failure=Failure(stage, "E", "m")))


def test_a_result_that_names_what_is_not_stored_is_refused(store: Store) -> None:
    done = action("a")
    with pytest.raises(StoreError, match=r"names the artifact 'x' \(0+\), which is not stored"):
        store.record(done, ActionResult("Translate", done.key, artifacts={"x": "0" * 64}))


def test_a_full_disk_is_said_and_leaves_the_store_valid(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    kept = put_result(store, "kept", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(StoreError, match=r"No space left on device\. Next step: free space .* cache gc"):
            put_result(store, "lost", tmp_path, weights="other")
    assert store.lookup(action("lost").key) is None
    assert store.lookup(kept.key) == kept
    assert not list((store.root / "tmp").iterdir())
    assert put_result(store, "lost", tmp_path, weights="other").facts == {"name": "lost"}


def test_a_full_disk_elsewhere_leaves_no_half_of_a_file_there(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    put_result(store, "kept", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "results.tar").write_text("the older one")
    monkeypatch.setattr(files.os, "fsync", full)
    folder = re.escape(str(out))
    said = rf"could not be written: No space left on device\. Next step: free space in {folder}, .*the store keeps"
    with pytest.raises(StoreError, match=said):
        export_tar(store, out / "results.tar", None, ())
    with pytest.raises(StoreError, match=said):
        files.copy_out(written(tmp_path, "file", "content"), out / "model.onnx")
    assert [path.name for path in out.iterdir()] == ["results.tar"]
    assert (out / "results.tar").read_text() == "the older one"


def test_a_store_that_cannot_be_written_or_has_another_format_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, "file", "")
    with pytest.raises(StoreError, match=r"could not write .*Next step: .*store\.path="):
        open_store(tmp_path / "file" / "store")
    store = open_store(tmp_path / "store")
    (store.root / "version").write_text("99\n")
    with pytest.raises(StoreError, match="has format '99'; this program reads and writes 2"):
        open_store(store.root)


def test_a_store_that_has_lost_its_version_opens_and_no_other_folder_does(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    put_result(store, "a", tmp_path)
    (store.root / "version").unlink()
    assert open_store(store.root).lookup(action("a").key) is not None
    (tmp_path / "begun" / "blobs").mkdir(parents=True)
    open_store(tmp_path / "begun")
    open_store(tmp_path / "begun").root.joinpath("note.txt").write_text("a store all the same")
    open_store(tmp_path / "begun")
    for name, found in (
        ("models/bert.onnx", "models/bert.onnx"),
        ("w.bin", "w.bin"),
        ("blobs/images/1", "blobs/images"),
    ):
        folder = tmp_path / found.replace("/", "_")
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("mine")
        with pytest.raises(
            UsageError, match=rf"is no store, and there is '{found}' in it.*Next step: name a new folder"
        ):
            open_store(folder)
        assert [path for path in folder.rglob("*") if path.is_file()] == [folder / name]


def _write_many(root: str, worker: int, rounds: int) -> None:
    store = open_store(Path(root))
    folder = store.scratch()
    for index in range(rounds):
        put_result(store, f"shared{index}", folder, weights=f"weights {index % 3}")
        put_result(store, f"own{worker}-{index}", folder, weights=f"weights {index % 3}")


def test_several_processes_write_the_same_and_different_things(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    writers = [SPAWN.Process(target=_write_many, args=(str(store.root), number, 10)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    names = [f"shared{index}" for index in range(10)] + [f"own{w}-{index}" for w in range(3) for index in range(10)]
    for name in names:
        found = store.lookup(action(name).key)
        assert found is not None, name
        for digest in found.artifacts.values():
            assert digest_bytes(store.blob_path(digest).read_bytes()) == digest
        assert found.model is not None
        assert store.model_path(found.model).read_text() == f"onnx {name}"


WRITER = """
import sys
sys.path[:0] = sys.argv[2:]
from test_store import _write_many
for round in range(10**6):
    _write_many(sys.argv[1], round, 3)
    if round == 0:
        print("ready", flush=True)
"""


def test_a_writer_that_is_killed_leaves_a_valid_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    for delay in (0.01, 0.05, 0.1):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root), str(ROOT), str(ROOT / "tests")], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
    store = open_store(root)
    entries = list(store.actions.glob("*/*.json"))
    assert entries
    for path in entries:
        found = store.lookup(path.stem)
        assert found is not None
        for digest in found.artifacts.values():
            assert digest_bytes(store.blob_path(digest).read_bytes()) == digest
    collect(store, 10**9, stale_after_s=-1)
    assert not list((root / "tmp").iterdir())


def _execute_once(root: str, log: str) -> None:
    store = open_store(Path(root))
    done = action("once")
    with store.single_flight(done.key):
        if store.lookup(done.key) is None:
            with open(log, "a", encoding="utf-8") as stream:
                stream.write("executed\n")
            time.sleep(0.3)
            store.record(done, ActionResult("Translate", done.key))


def test_two_processes_do_not_execute_one_action_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    workers = [SPAWN.Process(target=_execute_once, args=(str(tmp_path / "store"), str(log))) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert log.read_text() == "executed\n"


def test_a_process_that_an_action_leaves_behind_keeps_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    waiting, leave = os.pipe()
    with locked(path):
        helper = os.fork()
        if helper == 0:
            os.close(leave)
            os.read(waiting, 1)
            os._exit(0)
    with locked(path, wait=False) as held:
        assert held
    os.close(leave)
    os.close(waiting)
    os.waitpid(helper, 0)


def test_a_forked_process_that_leaves_the_context_leaves_the_lock_to_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(path))
        helper = os.fork()
        if helper == 0:
            stack.close()
            os._exit(0)
        os.waitpid(helper, 0)
        with locked(path, wait=False) as held:
            assert not held


def test_collecting_removes_the_least_recently_used_and_keeps_what_is_reachable(store: Store, tmp_path: Path) -> None:
    names = ("old", "used", "new")
    kept = {name: put_result(store, name, tmp_path, weights=name * 1000) for name in names}
    for age, name in zip((300, 200, 100), names, strict=True):
        os.utime(store.entry_path(kept[name].key), (time.time() - age,) * 2)
    assert store.lookup(kept["old"].key) is not None  # a use: now it is the newest
    store.put_bytes(b"unreachable")

    done = collect(store, 9_500)
    assert (done.removed_actions, done.kept_actions) == (1, 2)
    assert store.lookup(kept["used"].key) is None
    for name in ("old", "new"):
        assert store.lookup(kept[name].key) == kept[name]
    assert store.content.find(digest_bytes(b"unreachable")) is None
    assert store.content.find(digest_bytes(b"used" * 1000)) is None
    assert done.kept_bytes <= 9_500
    assert len(list(store.content.models.iterdir())) == 2

    assert collect(store, 0).kept_bytes == 0
    assert not list(store.content.models.iterdir())
    assert store.info().actions == {}


def test_shared_weights_stay_while_one_of_their_models_does(store: Store, tmp_path: Path) -> None:
    old, new = (put_result(store, name, tmp_path, weights="w" * 5000) for name in ("old", "new"))
    os.utime(store.entry_path(old.key), (1, 1))
    collect(store, 5000 + store.entry_path(new.key).stat().st_size + 100)
    assert store.lookup(old.key) is None
    assert store.lookup(new.key) == new


def test_collecting_waits_for_runs_to_end(store: Store) -> None:
    with store.in_use(), pytest.raises(StoreError, match="in use by a run"):
        collect(store, 0)
    with store.in_use(), store.in_use():
        pass


def test_info_counts(store: Store, tmp_path: Path) -> None:
    for name in "ab":
        put_result(store, name, tmp_path)
    info = store.info()
    assert (info.actions, info.models, info.blobs) == ({"Translate": 2}, 2, 2)
    assert info.bytes > 200


def test_durations_are_remembered(store: Store) -> None:
    assert store.durations() == {}
    store.remember_durations({"a": 1.0, "b": 2.0})
    store.remember_durations({"b": 3.0})
    assert store.durations() == {"a": 1.0, "b": 3.0}
