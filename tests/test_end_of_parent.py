"""A run that is killed takes all its processes with it, at every moment of their lives; who resumes it meets none."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from run_processes import RunProcess, parent_of, wait_until
from sweeping import Listener, cells, model, sweep

from batch_export.errors import RunError
from batch_export.runner import keeper, lifeline, predecessors
from batch_export.store import locks
from batch_export.store.locks import take

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is for Linux")

STUCK = """
    open({reached!r}, "w").close()
    ctypes.PyDLL(None).sleep(3600)  # in C, without letting any other line of Python run
"""
STARTS_A_SERVER = """
import sys, threading, time
from pathlib import Path
from batch_export.runner.launcher import Launcher

folder = Path(sys.argv[1])
launcher = Launcher(folder, sys.argv[2:], [str(folder)])
thread = threading.Thread(target=launcher.start)  # one that ends before the server does, as a pool's threads do
thread.start()
thread.join()
(folder / "reached").touch()
time.sleep(3600)
"""
SWEEPS = """
import sys
from pathlib import Path
from sweeping import cells, model, sweep

folder = Path(sys.argv[1])
sweep(folder, cells([model("m", marker=str(folder / "marker"), do={"Reference": sys.argv[2]})], (18,)), run="run")
"""


@pytest.mark.parametrize("moment", ["the interpreter starts", "a library is imported", "it waits for orders"])
def test_the_server_ends_with_a_killed_parent_whatever_it_is_doing(tmp_path: Path, moment: str) -> None:
    stuck = "import ctypes, sys\nif 'batch_export.runner.forkserver' in sys.orig_argv:"
    stuck += STUCK.format(reached=str(tmp_path / "reached"))
    if moment == "the interpreter starts":
        (tmp_path / "sitecustomize.py").write_text(stuck)
    if moment == "a library is imported":
        (tmp_path / "library.py").write_text(stuck)
    with RunProcess(STARTS_A_SERVER, tmp_path, *(["library"] if "library" in moment else []), path=tmp_path) as run:
        wait_until((tmp_path / "reached").exists)
        assert len(run.others()) == 1
        run.kill()
        run.require_nothing_left()


@pytest.mark.parametrize("deed", ["hang", "hang_with_helper"])
def test_children_and_what_they_started_end_with_a_killed_parent(tmp_path: Path, deed: str) -> None:
    with RunProcess(SWEEPS, tmp_path, deed) as run:
        wait_until(lambda: len(run.others()) == (4 if deed == "hang_with_helper" else 3))  # server, keeper, child
        run.kill()
        run.require_nothing_left()


def test_a_server_whose_parent_went_before_it_was_tied_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    ours, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other, line = socket.socketpair()
    ours.close()
    other.close()
    with control, line:
        numbers = [control.fileno(), line.fileno()]
        command = [sys.executable, "-m", "batch_export.runner.forkserver", *map(str, numbers), "library"]
        done = subprocess.run(command, pass_fds=numbers, env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False)
    assert done.returncode == 0
    assert not (tmp_path / "imported").exists()


def in_fork(what: Callable[[], object]) -> int:
    """Calls the function in a fork of this process, and returns how that ended."""
    pid = os.fork()
    if pid == 0:
        try:
            what()
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_keeper_whose_server_went_before_it_began_starts_no_child(tmp_path: Path) -> None:
    gone, fate = os.pipe(), os.pipe()

    def serve() -> None:
        server = os.getpid()
        if os.fork() == 0:
            os.close(gone[1])
            os.read(gone[0], 1)  # until the server is gone
            keeper.keep((tmp_path / "worked").touch, fate[1], server)

    assert in_fork(serve) == 99
    os.close(gone[1])
    os.close(fate[1])
    assert os.read(fate[0], 100) == b"", "and the keeper has ended"
    assert not (tmp_path / "worked").exists()
    os.close(gone[0])
    os.close(fate[0])


def test_a_child_whose_keeper_went_before_it_began_does_nothing(tmp_path: Path) -> None:
    assert in_fork(lambda: keeper._become_child((tmp_path / "worked").touch, keeper=1 << 22)) == 1
    assert not (tmp_path / "worked").exists()


def test_a_keeper_that_is_told_while_it_forks_still_ends_its_child() -> None:
    fork, (fate_read, fate) = os.fork, os.pipe()

    def forking() -> int:
        os.kill(os.getpid(), signal.SIGTERM)  # the server ends at this moment
        return fork()

    def keep() -> NoReturn:
        os.fork = forking
        keeper.keep(signal.pause, fate, os.getppid())

    assert in_fork(keep) == 1, "it gave up in good order, and was not ended by the signal"
    os.close(fate)
    while os.read(fate_read, 100):
        continue  # until the child, too, has let go of the pipe
    os.close(fate_read)


def test_a_keeper_does_not_wait_when_its_child_has_left_nothing() -> None:
    def keep() -> NoReturn:
        keeper.time.sleep = lambda _: os._exit(98)
        keeper.keep(lambda: None, fate, os.getppid())

    fate_read, fate = os.pipe()
    assert in_fork(keep) == 0
    assert os.read(fate_read, 100).decode().splitlines()[-1] == "exit 0"
    os.close(fate_read)
    os.close(fate)


def test_cutting_a_lifeline_waits_for_what_the_process_has_forked() -> None:
    """The process itself is killed at once; a fork of it, which is not tied, is waited for."""
    code = """
        import os, signal, sys
        if os.fork() == 0:
            print("forked", flush=True)
            sys.stdin.read()
            os._exit(0)
        signal.pause()
    """
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        lifeline.tie(process.pid, theirs)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == b"forked\n"
    second = ours.dup()
    ours.shutdown(socket.SHUT_WR)
    assert process.wait() == -signal.SIGKILL
    second.setblocking(False)
    with pytest.raises(BlockingIOError):
        second.recv(1)
    process.stdin.close()
    lifeline.cut(ours, 300.0)
    assert second.recv(1) == b""
    second.close()
    process.stdout.close()


def test_who_resumes_a_run_waits_for_the_last_process_of_the_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener()
    with RunProcess(SWEEPS, tmp_path, "once_hang_with_helper") as run:
        wait_until(lambda: len(run.others()) == 4)
        server = next(pid for pid in run.others() if parent_of(pid) == run.process.pid)
        slow = next(pid for pid in run.others() if parent_of(pid) == server)
        os.kill(slow, signal.SIGSTOP)  # a keeper that comes to end its child much later
        run.kill()
        waits: list[float] = []

        def wait(seconds: float) -> None:
            assert not hasattr(listener, "planned"), "nothing is looked at before"
            waits.append(seconds)
            if len(waits) == 5:
                os.kill(slow, signal.SIGCONT)
                run.require_nothing_left()

        monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=wait, monotonic=lambda: 0.0))
        work = cells([model("m", marker=str(tmp_path / "marker"), do={"Reference": "once_hang_with_helper"})], (18,))
        result = sweep(tmp_path, work, run="run", listener=listener)
    assert len(waits) >= 5
    assert [record.verdict for record in result.records] == ["pass"]


def test_processes_that_do_not_end_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "forkserver.log"
    predecessors.wait_for_their_end(log)
    assert not log.exists()
    with log.open("ab") as stream:
        assert take(stream.fileno())
        monkeypatch.setattr(predecessors, "_LIMIT_S", 0.0)
        with pytest.raises(RunError, match=r"have been killed and do not end; they have .*log open\. Next step: end"):
            predecessors.wait_for_their_end(log)
    predecessors.wait_for_their_end(log)


def test_nothing_is_left_when_a_sweep_returns(tmp_path: Path) -> None:
    code = SWEEPS + "print('returned', flush=True)\nimport time; time.sleep(3600)\n"
    with RunProcess(code, tmp_path, "") as run:
        assert run.process.stdout is not None
        assert run.process.stdout.readline() == "returned\n"
        assert run.others() == []
