"""Digests of files and folders: by content, remembered by time and size, by need where there is very much."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batch_export.sources import file_digests, file_times
from batch_export.sources.file_digests import file_digest, folder_digest, remember_in
from batch_export.sources.named_files import named_digests

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def told(tmp_path: Path) -> Iterator[list[str]]:
    messages: list[str] = []
    remember_in(tmp_path / "memo", messages.append)
    yield messages
    file_digests._Remembered.folder = None
    remember_in(tmp_path / "memo", lambda _: None)
    file_digests._Remembered.folder = None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    for name in ("a.w", "deep/b.w", ".git/config", "__pycache__/x.pyc", "a.lock", "a.log"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("1")
    (made / "empty.lock").touch()
    (made / "circle").symlink_to(made)
    (made / "nowhere").symlink_to(made / "none")
    os.mkfifo(made / "pipe")
    return made


@pytest.mark.parametrize(
    ("name", "text", "counts"),
    [
        ("a.w", "2", True),
        ("deep/b.w", "2", True),
        ("deep/c.w", "", True),
        (".git/config", "2", False),
        ("a.lock", "2", True),
        ("a.log", "2", True),
        ("empty.lock", "", False),
        ("another.lock", "", False),
        ("a.pyc", "2", False),
        ("out/store", "2", False),
    ],
)
def test_a_folder_is_what_its_files_are(folder: Path, name: str, text: str, counts: bool) -> None:
    before = folder_digest(folder, [folder / "out"])
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    assert (folder_digest(folder, [folder / "out"]) != before) is counts


@pytest.mark.parametrize("very_large", [False, True], ids=["content", "sizes"])
@pytest.mark.parametrize(
    ("deed", "counts"),
    [
        ("(folder / 'fast').mkdir()", True),
        ("(folder / 'deep/fast').mkdir()", True),
        ("(folder / 'empty').rmdir()", True),
        ("(folder / 'new').symlink_to('none')", True),
        ("(folder / 'new').symlink_to('new')", True),
        ("(folder / 'nowhere').unlink()", True),
        ("(folder / 'nowhere').unlink(); (folder / 'nowhere').symlink_to('another')", True),
        ("(folder / 'a.w').rename(folder / '../b.w'); (folder / 'a.w').symlink_to('../b.w')", True),
        ("(folder / 'deep').rename(folder / '../deep'); (folder / 'deep').symlink_to('../deep')", True),
        ("(folder / 'circle').unlink()", True),
        ("(folder / 'deep/__pycache__').mkdir()", False),
        ("(folder / 'out/made').mkdir(parents=True)", False),
        ("(folder / '.#a.w').symlink_to('me@here.1')", False),
        ("(folder / 'new.lock').symlink_to('me@here.1')", False),
    ],
)
def test_folders_and_links_in_a_folder_count(
    folder: Path,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
    deed: str,
    counts: bool,
    very_large: bool,
) -> None:
    later = time.time_ns() + HOUR_NS
    monkeypatch.setattr(file_times.time, "time_ns", lambda: later)  # so that digests are remembered
    if very_large:
        monkeypatch.setattr(file_digests, "WHOLE_FILES", 1)
    (folder / "empty").mkdir()
    before = folder_digest(folder, [folder / "out"])
    assert folder_digest(folder, [folder / "out"]) == before
    exec(deed, {"folder": folder})
    assert (folder_digest(folder, [folder / "out"]) != before) is counts
    assert bool(told) is very_large


def test_what_is_large_is_read_once_and_what_is_very_large_by_need(
    folder: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_digests, "LARGE_FILES", 1)
    for path in folder.rglob("*.w"):
        os.utime(path, ns=(path.stat().st_mtime_ns - HOUR_NS,) * 2)
    monkeypatch.setattr(file_times.time, "time_ns", lambda: path.stat().st_ctime_ns + HOUR_NS)
    first = folder_digest(folder)
    assert [text for text in told if "(4 files, 0.0 GB), once for as long as nothing in it changes" in text]
    read: list[Path] = []
    monkeypatch.setattr(file_digests, "digest_file", read.append)
    assert folder_digest(folder) == first
    assert (len(told), read) == (1, [])
    monkeypatch.setattr(file_digests, "WHOLE_FILES", 1)
    assert folder_digest(folder) != first
    assert "names and sizes are compared" in told[-1]
    assert read == []


def test_a_large_file_is_read_once_by_all_processes_unless_it_was_written_just_now(
    tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_digests, "REMEMBERED_FROM_BYTES", 1)
    path = tmp_path / "w.bin"
    path.write_text("1")
    monkeypatch.setattr(file_times.time, "time_ns", lambda: path.stat().st_ctime_ns)
    first = file_digest(path)
    assert not list((tmp_path / "memo").glob("*"))
    monkeypatch.setattr(file_times.time, "time_ns", lambda: path.stat().st_ctime_ns + HOUR_NS)
    file_digests._file_digest.cache_clear()
    assert file_digest(path) == first
    file_digests._file_digest.cache_clear()
    monkeypatch.setattr(file_digests, "digest_file", lambda _: pytest.fail("read again"))
    assert file_digest(path) == first
    (memo,) = (tmp_path / "memo").glob("*")
    memo.write_text("damaged")
    file_digests._file_digest.cache_clear()
    monkeypatch.undo()
    assert file_digest(path) == first


def test_arguments_name_folders_but_not_those_that_the_run_writes_into(folder: Path, tmp_path: Path) -> None:
    arguments = {"path": str(folder), "root": str(tmp_path), "empty": "", "dot": "/", "word": "none\0such"}
    assert set(named_digests(arguments, [tmp_path / "src"])) == {str(folder)}
    assert named_digests(arguments, [], avoided=[folder / "store"]).keys() <= {str(tmp_path)}


@pytest.mark.usefixtures("told")
def test_a_file_in_memory_changes_without_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK) or file_times.last_change(place.stat()) != file_times.NEVER:
        pytest.skip("no file system in memory that is writable at /dev/shm")
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = Path(folder, "a.w")
        path.write_bytes(bytes(file_digests.REMEMBERED_FROM_BYTES))
        later = path.stat().st_mtime_ns + HOUR_NS
        monkeypatch.setattr(file_times.time, "time_ns", lambda: later)
        found, times = [], set()
        with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as view:
            for text in (b"1", b"2", b"3"):
                view[:1] = text
                times.add(path.stat().st_mtime_ns)
                remember_in(tmp_path / "memo")
                found.append((file_digest(path), folder_digest(Path(folder))))
        assert len(times) == 1
        assert len({one for pair in found for one in pair}) == 6


@pytest.mark.parametrize(("age_s", "times_read"), [(1, 2), (50, 2), (70, 1)])
@pytest.mark.usefixtures("told")
def test_a_large_file_is_remembered_once_its_time_would_tell_of_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age_s: int, times_read: int
) -> None:
    path = tmp_path / "a.w"
    path.write_bytes(bytes(file_digests.REMEMBERED_FROM_BYTES))
    status = path.stat()
    if file_times.last_change(status) == file_times.NEVER:
        pytest.skip("temporary files lie in memory here, and are read each time")
    monkeypatch.setattr(file_times.time, "time_ns", lambda: status.st_ctime_ns + age_s * 1_000_000_000)
    read: list[Path] = []
    monkeypatch.setattr(file_digests, "digest_file", lambda one: read.append(one) or "digest")
    for _ in range(2):
        remember_in(tmp_path / "memo")
        assert file_digest(path) == "digest"
    assert len(read) == times_read
