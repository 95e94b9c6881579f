"""Damage in the store: found, put aside, made again; results on their way in tar files; leases between machines."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from sweeping import Listener, cells, model, sweep
from test_store import ROOT, action, put_result, written

from batch_export.action import Action, ActionResult
from batch_export.digest import digest_bytes
from batch_export.errors import CorruptArtifactError, StoreError
from batch_export.record import Failure
from batch_export.spec import StoreSpec
from batch_export.steps import LOCAL
from batch_export.store import Store, leases, open_store
from batch_export.store.audit import audit
from batch_export.store.bundle import export_tar, import_tar
from batch_export.store.collection import collect
from batch_export.store.entry import decode_entry, encode_entry, is_plain_name, read_entry
from batch_export.store.leases import leased


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store", [tmp_path])


def flip(path: Path) -> None:
    """Changes one byte and keeps the size and the times."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_damaged_file_is_found_when_it_is_read_and_put_aside(store: Store, tmp_path: Path) -> None:
    result = put_result(store, "a", tmp_path)
    digest = result.artifacts["evidence"]
    flip(store.content.place(digest))
    with pytest.raises(CorruptArtifactError, match=r"is damaged: its content is not what its digest .* is made again"):
        store.blob_path(digest)
    assert store.lookup(result.key) is None
    log = (store.root / "quarantine" / "log.jsonl").read_text().splitlines()
    assert json.loads(log[0])["expected"] == digest
    assert store.info().quarantined == 1
    assert put_result(store, "a", tmp_path) == result
    assert store.blob_path(digest).read_text() == "evidence a"


@pytest.mark.parametrize("what", ["onnx", "weights"])
def test_a_damaged_model_is_found_when_it_is_opened(store: Store, tmp_path: Path, what: str) -> None:
    result = put_result(store, "a", tmp_path)
    assert result.model is not None
    path = store.model_path(result.model)
    flip(path if what == "onnx" else path.parent / "weights.bin")
    with pytest.raises(CorruptArtifactError):
        store.open_model(result.model)
    assert store.lookup(result.key) is None
    again = put_result(store, "a", tmp_path)
    assert again.model is not None
    assert store.open_model(again.model).read_text() == "onnx a"


def places(store: Store, result: ActionResult) -> dict[str, Path]:
    assert result.model is not None
    onnx = store.model_path(result.model)
    blob = store.content.place(result.artifacts["evidence"])
    return {"onnx": onnx, "weights": onnx.parent / "weights.bin", "blob": blob, "entry": store.entry_path(result.key)}


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "device"])
def test_what_is_no_file_in_the_place_of_an_entry_is_never_read(
    store: Store, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    result = put_result(store, "a", tmp_path)
    path = places(store, result)["entry"]
    path.unlink()
    make(path)
    assert store.lookup(result.key) is None
    assert put_result(store, "a", tmp_path) == result
    assert store.lookup(result.key) == result
    assert path.is_file()
    assert not path.is_symlink()


@pytest.mark.parametrize("what", ["onnx", "weights", "blob", "entry"])
def test_a_folder_in_the_place_of_a_file_is_put_aside_and_the_file_made_again(
    store: Store, tmp_path: Path, what: str
) -> None:
    result = put_result(store, "a", tmp_path)
    path = places(store, result)[what]
    path.unlink()
    path.mkdir()
    (path / "inner").touch()
    assert store.lookup(result.key) is None
    assert put_result(store, "a", tmp_path) == result
    assert store.lookup(result.key) == result
    assert store.info().quarantined == 1
    assert audit(store).sound


@pytest.mark.parametrize("what", ["onnx", "weights", "blob"])
def test_a_link_to_a_device_in_the_place_of_a_file_is_put_aside_and_never_read(
    store: Store, tmp_path: Path, what: str
) -> None:
    result = put_result(store, "a", tmp_path)
    path = places(store, result)[what]
    path.unlink()
    path.symlink_to("/dev/zero")
    assert put_result(store, "a", tmp_path) == result
    assert store.lookup(result.key) == result
    assert path.is_file()


@pytest.mark.parametrize("what", ["onnx", "weights", "blob", "entry"])
def test_a_folder_in_the_place_of_a_file_is_found_and_collected(store: Store, tmp_path: Path, what: str) -> None:
    path = places(store, put_result(store, "a", tmp_path))[what]
    path.unlink()
    path.mkdir()
    assert audit(store).corrupted == (path.relative_to(store.root).as_posix(),)
    path.mkdir()
    collect(store, older_than_s=0.0)
    assert not path.exists()


def test_a_file_is_read_once_per_process_or_always_or_never(tmp_path: Path) -> None:
    root = tmp_path / "store"
    result = put_result(open_store(root), "a", tmp_path)
    digest = result.artifacts["evidence"]
    place = open_store(root).content.place(digest)
    reading = open_store(root)
    assert reading.blob_path(digest) == place
    flip(place)
    assert reading.blob_path(digest) == place  # known to this process
    assert open_store(root, [], StoreSpec(verify="size")).blob_path(digest) == place
    assert open_store(root, [], StoreSpec(verify="size")).lookup(result.key) is not None
    assert open_store(root, [], StoreSpec(verify="always")).lookup(result.key) is None
    assert open_store(root).lookup(result.key) is None  # in quarantine by now


@pytest.mark.parametrize(("mnemonic", "tensors"), [("Reference", False), ("Translate", False), ("Translate", True)])
def test_a_sweep_makes_damaged_files_again_and_says_so(tmp_path: Path, mnemonic: str, tensors: bool) -> None:
    work = cells([model("m")])
    before = sweep(tmp_path, work)
    store = open_store(tmp_path / "store")
    results = [entry.result for _, entry in store.entries() if entry.result.mnemonic == mnemonic]
    damaged: set[Path] = set()  # several files share a tensor
    for result in results:
        if result.model is not None:
            path = store.model_path(result.model)
            damaged.update([path.parent / name for name, _ in result.model.external] if tensors else [path])
        damaged.update(map(store.content.blob_path, result.artifacts.values()))
    assert damaged
    for path in damaged:
        flip(path)
    for _, entry in store.entries():  # the parent must send a child to the damaged files
        if entry.result.mnemonic in ("Check", "Run"):
            store.entry_path(entry.result.key).unlink()
    listener = Listener()
    after = sweep(tmp_path, work, listener=listener)
    assert [record.verdict for record in after.records] == ["pass", "pass"]
    assert [record.onnx for record in after.records] == [record.onnx for record in before.records]
    assert any("is damaged" in text for text in listener.messages)
    assert audit(open_store(tmp_path / "store")).sound


def test_verify_reads_everything(store: Store, tmp_path: Path) -> None:
    first, second = (put_result(store, name, tmp_path) for name in "ab")
    found = audit(store)
    assert (found.entries, found.files, found.corrupted, found.incomplete, found.unnamed) == (2, 5, (), 0, 0)
    assert first.model is not None
    flip(store.model_path(first.model))
    flip(store.entry_path(second.key))
    store.put_bytes(b"nobody names this")
    written(store.model_path(first.model).parent, "other.bin", "nor this")
    found = audit(store)
    assert sorted(Path(name).parts[0] for name in found.corrupted) == ["actions", "models"]
    assert (found.entries, found.incomplete, found.unnamed) == (1, 1, 1)
    assert audit(store).sound


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0b", "x.onnx", "/etc/passwd"])
def test_names_that_leave_their_folder_are_no_names(name: str) -> None:
    assert not is_plain_name(name)


def test_an_entry_with_names_or_digests_that_are_none_is_no_entry(store: Store, tmp_path: Path) -> None:
    result = put_result(store, "a", tmp_path)
    entry = read_entry(store.entry_path(result.key))
    assert entry is not None
    data = encode_entry(entry)
    assert decode_entry(data) == entry
    assert decode_entry(data.splitlines()[0]) == entry  # as older versions wrote it
    for old, new in (
        ('"weights.bin"', '"../../weights.bin"'),
        (result.artifacts["evidence"], "../../../../etc/passwd"),
        ('"format":2', '"format":3'),
    ):
        body = data.splitlines()[0].replace(old.encode(), new.encode())
        assert body != data.splitlines()[0]
        assert decode_entry(body + b"\n" + digest_bytes(body).encode() + b"\n") is None
        assert decode_entry(body) is None


def test_results_travel_in_a_tar_file(store: Store, tmp_path: Path) -> None:
    first, second = (put_result(store, name, tmp_path) for name in "ab")
    latency = Action("Measure", (("a", "b"),))
    store.record(latency, ActionResult("Measure", latency.key))
    file = tmp_path / "results.tar"
    done = export_tar(store, file, None, LOCAL)
    assert (done.entries, done.left_out) == (2, 1)
    with tarfile.open(file) as tar:
        assert len([name for name in tar.getnames() if name.startswith("blobs/")]) == 5  # shared weights once
    other = open_store(tmp_path / "other")
    assert (import_tar(other, file).entries, import_tar(other, file).left_out) == (2, 0)
    assert [other.lookup(result.key) for result in (first, second)] == [first, second]
    assert audit(other).sound
    assert export_tar(store, file, {first.key}, LOCAL).entries == 1


def test_a_tar_file_from_elsewhere_brings_only_what_is_what_it_says(store: Store, tmp_path: Path) -> None:
    result = put_result(store, "a", tmp_path)
    export_tar(store, tmp_path / "good.tar", None, LOCAL)
    digest = result.artifacts["evidence"]
    with tarfile.open(tmp_path / "good.tar") as good, tarfile.open(tmp_path / "evil.tar", "w") as evil:
        for member in good.getmembers():
            source = good.extractfile(member)
            assert source is not None
            data = source.read()
            if member.name.endswith(digest):
                data = b"other data"
            member.size = len(data)
            evil.addfile(member, io.BytesIO(data))
        for name in ("../../outside", "/tmp/outside", f"blobs/../../{digest}", "actions/00/x.json"):
            evil.addfile(tarfile.TarInfo(name))
        link = tarfile.TarInfo("blobs/aa/" + "a" * 64)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        evil.addfile(link)
    other = open_store(tmp_path / "deep" / "other")
    done = import_tar(other, tmp_path / "evil.tar")
    assert (done.entries, done.left_out) == (0, 5)
    assert other.lookup(result.key) is None
    assert not list(tmp_path.rglob("outside"))
    assert audit(other).sound


@pytest.mark.parametrize("data", [b"", b"no tar file", b"\x1f\x8b" + b"x" * 2000])
def test_what_is_no_tar_file_is_said(store: Store, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(data)
    with pytest.raises(StoreError, match=r"cannot be read as an exported store.*Next step: name a file that `cache ex"):
        import_tar(store, tmp_path / "x.tar")


def test_results_that_were_not_used_for_long_are_collected(store: Store, tmp_path: Path) -> None:
    old, new = (put_result(store, name, tmp_path, weights=name * 99) for name in ("old", "new"))
    os.utime(store.entry_path(old.key), (time.time() - 3600,) * 2)
    done = collect(store, older_than_s=1800)
    assert (done.removed_actions, done.kept_actions) == (1, 1)
    assert store.lookup(new.key) == new
    assert audit(store).sound


HOLDER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from batch_export.store.leases import leased
with leased(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(3600)
"""


def test_a_lease_survives_its_owners_death(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path), str(ROOT)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert path.exists()
        process.kill()
    with leased(path, expiry_s=1e6):  # its owner is known to be dead, or this would take forever
        pass
    assert os.listdir(tmp_path) == []


class Clock:
    """The clock of leases: it goes on only while somebody waits, and tells then what time it is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, told: Callable[[float], None] = lambda now: None) -> None:
        self.now = 0.0
        self._told = told
        monkeypatch.setattr(leases, "time", self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._told(self.now)


def test_the_lease_of_another_machine_is_taken_over_only_when_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lease"
    other = {"host": f"not-{socket.gethostname()}", "pid": 1, "started": "1", "beat": 0, "token": "t"}
    path.write_bytes(msgspec.json.encode(other))

    def beat(now: float) -> None:
        if now < 100:
            path.write_bytes(msgspec.json.encode({**other, "beat": now}))

    clock = Clock(monkeypatch, beat)
    with leased(path, expiry_s=60):
        assert 100 + 60 < clock.now < 100 + 60 + 1, "an expiry after the last sign of life"
        assert os.listdir(tmp_path) == ["lease"]
    assert os.listdir(tmp_path) == []


def test_leases_exclude_one_another(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        with leased(tmp_path / "lease", expiry_s=1e6):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


RACER = """
import os, random, subprocess, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from batch_export.store import leases
folder, rounds, racers = Path(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])

def late(call):  # every step that others see is followed and preceded by a pause, so that others come between
    def act(*arguments, **named):
        time.sleep(random.uniform(0, 0.004))
        try:
            return call(*arguments, **named)
        finally:
            time.sleep(random.uniform(0, 0.004))
    return act

leases._look, leases._POLL_S = late(leases._look), 0.01
os.rename, os.replace, Path.unlink = late(os.rename), late(os.replace), late(Path.unlink)
for number in range(rounds):
    with open(folder / f"here{number}", "a") as stream:
        stream.write("x")
    while os.path.getsize(folder / f"here{number}") < racers:  # all start at once
        time.sleep(0.0005)
    with leases.leased(folder / f"{number}.lease", expiry_s=1e6):
        handle = os.open(folder / f"inside{number}", os.O_CREAT | os.O_EXCL)  # fails if somebody else is inside
        time.sleep(0.003)
        os.close(handle)
        os.unlink(folder / f"inside{number}")
    with open(folder / f"done{number}", "a") as stream:
        stream.write("x")
"""


def gone() -> dict[str, object]:
    """The owner of a lease who does not exist any more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pid = process.pid
    return {"host": leases._here(), "pid": pid, "started": "1", "beat": 0, "token": "a" * 32}


def test_of_many_processes_that_race_for_a_dead_owners_lease_one_at_a_time_gets_it(tmp_path: Path) -> None:
    rounds, racers = 8, 6
    dead = msgspec.json.encode(gone())
    for number in range(rounds):
        (tmp_path / f"{number}.lease").write_bytes(dead)
        if number % 2 == 0:
            claim = {**msgspec.json.decode(dead), "token": "b" * 32}  # somebody died while taking it over
            (tmp_path / f"{number}.lease.{'a' * 32}").write_bytes(msgspec.json.encode(claim))
    command = [sys.executable, "-c", RACER, str(tmp_path), str(ROOT), str(rounds), str(racers)]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(racers)]
    try:
        said = [process.communicate(timeout=600)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * racers, said[0]
    assert [(tmp_path / f"done{number}").read_text() for number in range(rounds)] == ["x" * racers] * rounds
    assert not list(tmp_path.glob("*.lease*"))


def test_a_waiter_that_comes_late_leaves_the_new_owners_lease_alone(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    path.write_bytes(msgspec.json.encode(gone()))
    first, second = leases._new_owner(), leases._new_owner()
    assert leases._take_over(path, path, "a" * 32, first, 60)
    assert not leases._take_over(path, path, "a" * 32, second, 60)
    assert leases._look(path)[1] == first.token
    assert os.listdir(tmp_path) == ["lease"]


def test_an_empty_lease_is_taken_over_when_nobody_fills_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lease"
    path.touch()
    clock = Clock(monkeypatch)
    with leased(path, expiry_s=60):
        assert 60 < clock.now < 61
    assert os.listdir(tmp_path) == []


def test_a_leases_token_never_leads_out_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    path = tmp_path / "locks" / "lease"
    path.parent.mkdir()
    path.write_bytes(msgspec.json.encode({**gone(), "token": "/../../outside"}))
    with leased(path, expiry_s=0.2):
        assert os.listdir(tmp_path) == ["locks"]
    assert os.listdir(path.parent) == []


def test_a_sweep_over_a_shared_folder_leases_its_actions(tmp_path: Path) -> None:
    result = sweep(tmp_path, cells([model("m")]), store=StoreSpec(shared=True))
    assert [record.verdict for record in result.records] == ["pass", "pass"]
    assert not list((tmp_path / "store" / "locks").glob("*.lease*"))


def test_a_result_of_several_tries_serves_only_its_run(tmp_path: Path) -> None:
    done = action("flaky")
    result = ActionResult("Translate", done.key, attempts=(Failure("crash", "SIGSEGV", "m"),))
    open_store(tmp_path / "s", run="one").record(done, result)
    assert open_store(tmp_path / "s", run="one").lookup(done.key) == result
    assert open_store(tmp_path / "s", run="two").lookup(done.key) is None
    assert open_store(tmp_path / "s").lookup(done.key) is None
