"""What forked processes note arrives in the first one, and in no other file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from batch_export.runner.forked_notes import ForkedNotes

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has files without a name")


def in_a_fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def notes() -> ForkedNotes:
    made = ForkedNotes()
    made.open()
    return made


def test_what_a_fork_and_its_fork_add_is_gathered(notes: ForkedNotes) -> None:
    read, listed = notes.shared("read"), notes.shared("listed")
    read.add("own")
    odd = os.fsdecode(b"w\xff\n.bin")

    def work() -> None:
        read.update(["own", "first"], [odd])
        assert in_a_fork(lambda: listed.add("second")) == 0

    assert in_a_fork(work) == 0
    assert read == {"own"}
    notes.gather()
    assert (read, listed) == ({"own", "first", odd}, {"second"})
    assert in_a_fork(lambda: listed.add("third")) == 0
    notes.gather()
    assert listed == {"second", "third"}


def test_a_file_that_has_got_the_number_of_a_closed_one_is_left_alone(notes: ForkedNotes, tmp_path: Path) -> None:
    read, users = notes.shared("read"), tmp_path / "results.txt"

    def work() -> None:
        os.closerange(3, 256)
        handles = [os.open(users, os.O_RDWR | os.O_CREAT) for _ in range(200)]
        read.add("unheard")
        assert handles

    assert in_a_fork(work) == 0
    assert users.read_bytes() == b""
    notes.gather()
    assert read == set()


def test_without_such_files_each_process_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    notes = ForkedNotes()
    notes.open()
    read = notes.shared("read")
    assert in_a_fork(lambda: read.add("unheard")) == 0
    notes.gather()
    assert read == set()
