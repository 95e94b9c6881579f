"""Signals that this process handles end no call which the kernel holds, but for those that are there to end one."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux' kernel tells")

SEEN = """
    import ctypes, os, signal, socket, threading, time

    from batch_export.runner.restarted_calls import RestartedCalls

    class Action(ctypes.Structure):
        _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int)]

    def restarts(number):
        action = Action()
        assert ctypes.CDLL(None).sigaction(number, None, ctypes.byref(action)) == 0
        return bool(action.flags & 0x10000000)

    signal.signal(signal.SIGUSR2, lambda *_: None)
    RestartedCalls().begin()
    for one in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM):
        signal.signal(one, lambda *_: None)
    print([restarts(one) for one in (signal.SIGUSR2, signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM)])
    signal.setitimer(signal.ITIMER_REAL, 100.0, 0.5)
    again = restarts(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 100.0)
    print([again, restarts(signal.SIGALRM), restarts(signal.SIGINT)])
"""


def test_calls_begin_again_but_for_signals_that_end_what_waits() -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(SEEN)], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[True, True, True, False, False]", "[True, False, False]"], done.stderr
