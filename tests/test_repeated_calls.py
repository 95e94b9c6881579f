"""Signals that a process handles end no call of `os` that the kernel holds, and what they are there to end."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from batch_export.runner.witness import Witness

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux' kernel tells")

_BEGUN = """
    import glob, importlib, os, pickle, signal, socket, sys, threading

    from batch_export.runner import repeated_calls
    from batch_export.runner.kernel_filter import be_watched

    channel = socket.socket(fileno=int(sys.argv[1]))
    os.chdir(sys.argv[2])
    rung = []
    unseen = be_watched(channel)
    if unseen:
        sys.exit(unseen)
    repeated_calls.begin()
    signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
"""
_ASKED = """
    answers = []
    for ask in (
        lambda: os.path.exists("there"),
        lambda: os.access("there", os.R_OK),
        lambda: os.listdir("folder"),
        lambda: sorted(one.name for one in os.scandir("folder")),
        lambda: sorted(glob.glob("folder/*")),
        lambda: next(os.walk("folder"))[2],
        lambda: os.readlink("link"),
        lambda: os.mkdir("made") or os.path.isdir("made"),
        lambda: importlib.import_module("beside").VALUE,
    ):
        rung.clear()
        sys.path_importer_cache.clear()
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        answer = ask()
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.append((answer, bool(rung)))
    print(answers)
"""
_WAITING = """
    done = threading.Event()
    signal.signal(signal.SIGALRM, lambda *_: done.set())
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    print(done.wait(30))

    class Mine(InterruptedError): pass
    def raises(*_): raise Mine
    signal.signal(signal.SIGALRM, raises)
    for wait in (lambda: os.read(os.pipe()[0], 1), lambda: [os.stat("there") for _ in range(10_000)]):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            wait()
        except Mine:
            print("ended")
"""


def watched(folder: Path, code: str, *, receives_after: float) -> str:
    """Returns what code prints whose calls are held, and received after some seconds each."""
    own, others = socket.socketpair()
    with own, others:
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_BEGUN) + textwrap.dedent(code), str(others.fileno()), str(folder)],
            pass_fds=[others.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        witness = Witness(own.dup(), lambda _: False)
        while child.poll() is None:
            for handle in select.select(witness.handles, [], [], 0.05)[0]:
                time.sleep(receives_after)
                if select.select([handle], [], [], 0)[0]:  # who called may have been ended meanwhile
                    witness.serve(handle, over=False)
        printed, errors = child.communicate()
    if child.returncode and "refuses" in errors:
        pytest.skip(errors.strip())
    assert child.returncode == 0, errors
    return printed


def test_calls_that_a_signal_ended_are_made_again(tmp_path: Path) -> None:
    for name in ("there", "folder/one", "folder/two", "beside.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("VALUE = 3\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("there")
    printed = watched(tmp_path, "    sys.path.insert(0, os.curdir)\n" + _ASKED, receives_after=0.015)
    answers = eval(printed)
    assert all(rung for _, rung in answers), answers
    values = [sorted(answer) if isinstance(answer, list) else answer for answer, _ in answers]
    folder = ["one", "two"]
    assert values == [True, True, folder, folder, [f"folder/{one}" for one in folder], folder, "there", True, 3]


def test_what_waits_for_a_signal_ends_and_what_a_handler_raises_ends_calls(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    assert watched(tmp_path, _WAITING, receives_after=0.0).split() == ["True", "ended", "ended"]


def test_functions_are_what_they_were() -> None:
    code = """
        import os, pickle
        before = [one in os.supports_dir_fd for one in (os.stat, os.access, os.mkdir)]
        from batch_export.runner import repeated_calls
        repeated_calls.begin()
        assert before == [one in os.supports_dir_fd for one in (os.stat, os.access, os.mkdir)]
        assert pickle.loads(pickle.dumps(os.stat)) is os.stat
        class Asking:
            ask = os.stat
        assert Asking().ask(os.curdir).st_mode
        with os.scandir(os.curdir) as entries:
            entries.close()
            assert list(entries) == []
        for ask in (os.stat, os.listdir, os.scandir):
            try:
                ask("/not/there")
            except FileNotFoundError as error:
                print(error.filename)
        print(os.access("/not/there", os.F_OK))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["/not/there"] * 3 + ["False"], done.stderr
