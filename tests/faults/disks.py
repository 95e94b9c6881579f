"""Faults of disks and files: full, read-only, damaged, truncated, removed under a run, malformed."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeping import Listener, sweep

from batch_export.errors import BatchExportError, StoreError, UsageError
from batch_export.report import run_folder
from batch_export.runner.surroundings import read_surroundings
from batch_export.runner.sweep import RunResult
from batch_export.spec import StoreSpec
from batch_export.store import Store, open_store
from batch_export.store.collection import collect
from batch_export.store.leases import leased
from faults.scene import Fault, Outcome, disturbed, matrix, require_neighbours, require_sound, undisturbed

DAMAGES = ("one bit", "half", "nothing left", "gone")


def faults() -> list[Fault]:
    """All faults of this family."""
    found = [
        Fault(f"a stored file damaged: {damage}", "disk", functools.partial(_damaged, damage)) for damage in DAMAGES
    ]
    found += [
        Fault("a bit of a cached result", "disk", _entry),
        Fault("the store is removed under a run", "disk", _removed),
        Fault("no space left for the store", "disk", _full),
        Fault("a store that cannot be written", "disk", _read_only),
        Fault("no space left for records.jsonl", "disk", _full_records),
        Fault("malformed durations.json", "disk", _durations),
        Fault("malformed run.json and environment.json", "disk", _malformed),
        Fault("a lease whose owner is gone", "disk", _lease),
        Fault("temporary files of a killed writer", "disk", _leftovers),
    ]
    return found


def _damaged(damage: str, folder: Path) -> Outcome:
    disturbed(folder, matrix())
    store = open_store(folder / "disturbed" / "store")
    victims = [path for path in store.content.blobs.glob("*/*") if not path.suffix]
    victims += [path for path in store.content.models.glob("*/*")]
    assert len(victims) > 10
    for path in victims:
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            changed = {
                "one bit": bytes([data[0] ^ 1]) + data[1:],
                "half": data[: len(data) // 2],
                "nothing left": b"",
            }
            path.write_bytes(changed[damage])
    for _, entry in store.entries():
        if entry.result.mnemonic in ("Check", "Run"):
            store.entry_path(entry.result.key).unlink()
    shutil.rmtree(folder / "disturbed" / "run")
    result, listener = disturbed(folder, matrix())
    assert {record.verdict for record in result.records} == {"pass"}
    said = sum("is damaged" in text for text in listener.messages)
    assert bool(said) == (damage == "one bit")
    return Outcome(f"{len(victims)} files made again, {said} told", _same_files(folder, result))


def _same_files(folder: Path, result: object) -> str:
    """The origins of actions differ (what was sound came from the store); the facts may not."""
    assert isinstance(result, RunResult)
    facts = [(record.cell, record.verdict, record.runs, record.onnx) for record in result.records]
    assert facts == [(record.cell, record.verdict, record.runs, record.onnx) for record in undisturbed()]
    require_sound(folder / "disturbed" / "store")
    return f"facts of {len(facts)} records identical, store sound"


def _entry(folder: Path) -> Outcome:
    disturbed(folder, matrix())
    store = open_store(folder / "disturbed" / "store")
    count = 0
    for path in store.actions.glob("*/*.json"):
        data = path.read_bytes()
        if b"max_abs" in data:
            path.write_bytes(data.replace(b"0.001", b"0.002"))
            count += 1
    shutil.rmtree(folder / "disturbed" / "run")
    result, _ = disturbed(folder, matrix())
    assert result.counts["ran"] == count == 12
    return Outcome(f"{count} results executed again", _same_files(folder, result))


def _removed(folder: Path) -> Outcome:
    store = folder / "disturbed" / "store"

    class Removing(Listener):
        def record(self, record: object) -> None:
            if not self.records:
                shutil.rmtree(store, ignore_errors=True)
            self.records.append(record)  # type: ignore[arg-type]

    first = sweep(folder / "disturbed", matrix(), run="run", listener=Removing())
    assert {record.verdict for record in first.records} <= {"pass", "fail"}
    failures = [record.failure for record in first.records if record.verdict == "fail"]
    assert {failure.stage for failure in failures if failure} <= {"environment"}, failures
    result, _ = disturbed(folder, matrix())
    assert {record.verdict for record in result.records} == {"pass"}
    hit = sum(record.verdict == "fail" for record in first.records)
    facts = [(record.cell, record.runs) for record in result.records]
    assert facts == [(record.cell, record.runs) for record in undisturbed()]
    return Outcome(f"{hit} cells: fail environment", "after resume facts of 12 records identical")


@contextlib.contextmanager
def small_disk(folder: Path, size: str, *, read_only: bool = False) -> Iterator[None]:
    """A file system of its own at `folder`; needs the right to mount."""
    folder.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("needs the right to mount a small file system (root)")
    try:
        if read_only:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield
    finally:
        for _ in range(50):
            if not subprocess.run(["umount", str(folder)], capture_output=True, check=False).returncode:
                break
            time.sleep(0.1)


def _full(folder: Path) -> Outcome:
    store = folder / "disturbed" / "store"
    (folder / "disturbed").mkdir()
    with small_disk(store, "4m"):
        open_store(store)
        ballast = store / "ballast"
        ballast.write_bytes(b"x" * (4096 * 1024 - 160 * 1024))
        first = sweep(folder / "disturbed", matrix(), run="run")
        failed = [record for record in first.records if record.verdict == "fail"]
        assert failed
        assert {record.stage for record in failed} == {"environment"}
        assert any("No space left on device" in record.message for record in failed)
        ballast.unlink()
        result, _ = disturbed(folder, matrix())
        assert {record.verdict for record in result.records} == {"pass"}
        return Outcome(f"{len(failed)} cells: fail environment", "after resume " + _same_files(folder, result))


def _read_only(folder: Path) -> Outcome:
    store = folder / "disturbed" / "store"
    (folder / "disturbed").mkdir()
    with small_disk(store, "4m", read_only=True), pytest.raises(StoreError) as raised:
        sweep(folder / "disturbed", matrix(), run="run")
    sentence = str(raised.value)
    assert "Next step: choose a folder that you may write to" in sentence
    return Outcome("the run does not start: Read-only file system", "nothing was there to lose")


def _full_records(folder: Path) -> Outcome:
    run = folder / "disturbed" / "run"
    (folder / "disturbed").mkdir()
    with small_disk(run, "64k"):
        with pytest.raises(BatchExportError, match="No space left on device"):
            sweep(folder / "disturbed", matrix(do={"Reference": "chat"}), run="run")
        subprocess.run(["mount", "-o", "remount,size=16m", str(run)], check=True)
        result, _ = disturbed(folder, matrix(do={"Reference": "chat"}))
        assert {record.verdict for record in result.records} == {"pass"}
        return Outcome("the run stops: No space left on device", "after resume " + _same_files(folder, result))


def _durations(folder: Path) -> Outcome:
    store = open_store(folder / "disturbed" / "store")
    for text in ("[", '{"a": "b"}', "\0\0\0", "[" * 100_000):
        (store.root / "durations.json").write_text(text)
        assert store.durations() == {}
    result, _ = disturbed(folder, matrix())
    return Outcome("nobody", require_neighbours(folder, result))


def _malformed(folder: Path) -> Outcome:
    run = folder / "run"
    run.mkdir()
    for text in ("", "{", "[]", '{"spec": 1}', "\0" * 50, "[" * 100_000, '{"schema_version": "x"}'):
        (run / "run.json").write_text(text)
        with pytest.raises(UsageError, match=r"run\.json"):
            run_folder.read_run(run)
        (run / "environment.json").write_text(text)
        assert read_surroundings(run) is None
    return Outcome("a sentence that names the file", "nothing was run")


_DYING_OWNER = """
import os, sys
from pathlib import Path
from batch_export.store.leases import leased
with leased(Path(sys.argv[1])):
    os._exit(0)
"""


def _lease(folder: Path) -> Outcome:
    open_store(folder / "disturbed" / "store")
    locks = folder / "disturbed" / "store" / "locks"
    path = locks / ("a" * 64 + ".lease")
    subprocess.run([sys.executable, "-c", _DYING_OWNER, str(path)], check=True)
    assert path.is_file()
    with leased(path, expiry_s=1e6):  # its owner is known to be dead, or this would take forever
        pass
    result, _ = disturbed(folder, matrix(), store=StoreSpec(shared=True))
    return Outcome("taken over", require_neighbours(folder, result))


def _leftovers(folder: Path) -> Outcome:
    disturbed(folder, matrix())
    store: Store = open_store(folder / "disturbed" / "store")
    for name in ("write-x", "copy-y"):
        (store.root / "tmp" / name).write_text("left")
    (store.root / "tmp" / "unit-z").mkdir()
    collect(store, 1 << 40, stale_after_s=-1)
    assert not list((store.root / "tmp").iterdir())
    result, _ = disturbed(folder, matrix())
    return Outcome("nobody; gc removes them", require_neighbours(folder, result))
