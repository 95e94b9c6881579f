"""Faults of children: signals, exits, hangs, floods, leaks, and what else a model may do to its process."""

from __future__ import annotations

import functools
import signal
from pathlib import Path

from faults.scene import FIRST_ACTION_LIMIT_S, Fault, Outcome, blamed, disturbed, matrix, require_neighbours

SIGNALS = ("SEGV", "ABRT", "BUS", "FPE", "ILL", "KILL", "TERM", "HUP", "QUIT", "XCPU", "USR1")

DEEDS = {
    "a model calls sys.exit": ("Reference", "exit", "fail model SystemExit"),
    "a model calls os._exit(0)": ("Reference", "hard_exit", "fail crash ProcessExit"),
    "a model raises KeyboardInterrupt": ("Reference", "interrupt", "fail model KeyboardInterrupt"),
    "a read through a null pointer": ("Capture", "segfault", "fail crash SIGSEGV"),
    "endless recursion": ("Reference", "recurse", "fail model RecursionError"),
    "an action that hangs": ("Reference", "hang", "fail timeout Timeout"),
    "a child that is stopped (SIGSTOP)": ("Reference", f"signal_{int(signal.SIGSTOP)}", "fail timeout Timeout"),
    "a helper process that hangs": ("Reference", "hang_with_helper", "fail timeout Timeout"),
    "a thread that never ends": ("Reference", "endless_thread", "pass"),
    "memory without end": ("Capture", "leak", "fail memory MemoryLimit"),
    "MemoryError": ("Capture", "out_of_memory", "fail memory MemoryError"),
    "output without end": ("Capture", "flood", "fail crash OutputLimit"),
    "an error message of 9 MB": ("Reference", "long_message", "fail model ValueError"),
    "a lone surrogate in a message": ("Reference", "surrogates", "fail model ValueError"),
    "a result that is not plain data": ("Reference", "not_plain", "fail model TypeError"),
    "another folder and environment": ("Reference", "move_away", "pass"),
    "all descriptors closed": ("Capture", "close_everything", "fail crash ProcessExit"),
    "no space left (in a model)": ("Capture", "full_disk", "fail environment OSError"),
}
LONG_FORM = (
    "memory without end",
    "output without end",
    # Beside one neighbour instead of two, these are in test_isolation.py.
    "a model raises KeyboardInterrupt",
    "endless recursion",
    "a thread that never ends",
    "MemoryError",
    "an error message of 9 MB",
    "all descriptors closed",
)
"""Deeds that only the long form injects."""


def faults() -> list[Fault]:
    """All faults of this family."""
    found = [
        Fault(f"SIG{name} in a child", "child", functools.partial(_signal, name), quick=name in ("SEGV", "KILL"))
        for name in SIGNALS
    ]
    found += [
        Fault(name, "child", functools.partial(_deed, *deed), quick=name not in LONG_FORM)
        for name, deed in DEEDS.items()
    ]
    found += [
        Fault("a helper that left its session", "child", _escaping),
        Fault("a crash that does not come again", "child", _flaky),
        Fault("newlines and unicode in a model's name", "child", _odd_name),
    ]
    return found


def _signal(name: str, folder: Path) -> Outcome:
    number = int(getattr(signal, f"SIG{name}"))
    result, _ = disturbed(folder, matrix(do={"Translate@20": f"signal_{number}"}))
    assert blamed(result) == f"fail crash SIG{name}, pass"
    return Outcome(blamed(result), require_neighbours(folder, result))


def _deed(step: str, deed: str, expected: str, folder: Path) -> Outcome:
    limit = FIRST_ACTION_LIMIT_S if "Timeout" in expected else 0.0
    result, _ = disturbed(folder, matrix(do={step: deed}, limit_s=limit), memory_gb=0.2)
    assert blamed(result) == expected, blamed(result)
    return Outcome(blamed(result), require_neighbours(folder, result))


def _escaping(folder: Path) -> Outcome:
    pids = folder / "pid"
    result, _ = disturbed(folder, matrix(do={"Reference": "escaping_helper"}, pids=str(pids)))
    assert blamed(result) == "pass"
    try:
        state = Path(f"/proc/{int(pids.read_text())}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        state = "gone"
    assert state in ("gone", "Z")
    return Outcome("pass, and the helper is gone", require_neighbours(folder, result))


def _flaky(folder: Path) -> Outcome:
    work = matrix(do={"Translate@20": "once_segfault"}, marker=str(folder / "marker"))
    result, _ = disturbed(folder, work, retries=1)
    assert blamed(result) == "flaky crash SIGSEGV, pass"
    return Outcome(blamed(result), require_neighbours(folder, result))


def _odd_name(folder: Path) -> Outcome:
    name = "ünï\ncode/../‮x" + "y" * 300
    result, _ = disturbed(folder, matrix(do={"Translate@20": "segfault"}, name=name))
    assert blamed(result, name) == "fail crash SIGSEGV, pass"
    logs = folder / "disturbed" / "run" / "logs"
    assert {path.parent for path in folder.rglob("*.log")} == {logs}
    return Outcome(blamed(result, name), require_neighbours(folder, result))
