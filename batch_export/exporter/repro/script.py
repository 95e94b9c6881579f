"""Does the bug in this folder still live? Exits 1 while it does, 0 once it is fixed, 2 when it cannot be told.

Needs torch, onnxruntime and batch_export, and the files beside it: `case.json` (what fails and how), and unless it is
the whole cell that fails `subject.pt2` or `subject.pt` (the smallest program or module that does) and `values.pt`
(inputs, and the outputs that eager PyTorch gives). Run it as `python repro.py`; `python repro.py --verbose` also
prints the traceback. Nothing is written here.

The try itself is made in a process of its own; only that one imports torch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Symptom = dict[str, object]
"""How it fails: `stage`, `error_class`, `operator` (may be empty) and `message`."""
READY = "ready"
"""What a try prints when everything is imported, and before each further step: time and memory count from there."""
BROKEN = "broken"
"""What a try prints when it cannot be made: its exit code is then no symptom."""
ENDED = ("crash", "timeout", "memory")
"""Stages of failures that end the process itself; `record.PROCESS_STAGES`, in a file that stands alone."""
_ATTEMPT = "batch_export.exporter.repro.attempt"
"""The module that makes one try and imports torch; `-P` keeps the current folder out of its imports."""
_UNFIT = 2
_POLL_S = 0.05
_IMPORTS_S = 120.0
"""What imports may take, however short the limit of a step."""


def main(folder: Path, arguments: Sequence[str]) -> int:
    """Tries again, and says what came of it."""
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    wanted: Symptom = case["symptom"]
    try:
        found = in_child(folder, case, arguments)
    except RuntimeError as error:
        print(f"cannot tell: {error}")
        return _UNFIT
    if found is None:
        print(f"fixed: {case['title']}")
        return 0
    if not same_symptom(found, wanted):
        print(f"fails in another way than it did ({wanted['stage']} {wanted['error_class']}):")
    print(f"{found['stage']} {found['error_class']}: {found['message']}")
    return 1


def in_child(folder: Path, case: Mapping[str, object], arguments: Sequence[str] = ()) -> Symptom | None:
    """Tries in a process of its own, so that a crash, an endless loop or too much memory is an answer like any other.

    Raises:
        RuntimeError: the try itself failed, so that nothing is known.
    """
    command = [sys.executable, "-P", "-m", str(case.get("attempt", _ATTEMPT)), str(folder), *arguments]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    lines: list[str] = []
    reader = threading.Thread(target=_read, args=(child, lines), daemon=True)
    reader.start()
    try:
        ended = _over_a_limit(child, lines, case)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()
    if ended is not None:
        return ended
    reader.join()
    if child.returncode < 0:
        return _ended("crash", *_by_signal(-child.returncode))
    if READY not in lines or BROKEN in lines:
        raise RuntimeError(f"the attempt itself failed with exit code {child.returncode}; see the lines above")
    try:
        found: Symptom | None = json.loads(lines[-1])
    except ValueError:  # no answer: the process was ended from within, by os._exit or a library
        return _ended("crash", "ProcessExit", f"the process ended itself with exit code {child.returncode}")
    return found


def _by_signal(number: int) -> tuple[str, str]:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = "Crash"
    return name, f"the process was ended by signal {number} ({name})"


def _read(child: subprocess.Popen[bytes], lines: list[str]) -> None:
    assert child.stdout is not None
    with child.stdout as stream:
        for line in stream:
            if line.strip():
                lines.append(line.decode("utf-8", "replace").strip())


def _over_a_limit(child: subprocess.Popen[bytes], lines: list[str], case: Mapping[str, Any]) -> Symptom | None:
    """Waits until the child ends; returns how it broke a limit, if it did."""
    limit, most = case["timeout_s"], case.get("memory_bytes", 0)
    begun, at_first, steps = time.monotonic(), -1, 0
    while True:
        try:
            child.wait(_POLL_S)
            return None
        except subprocess.TimeoutExpired:
            pass
        if lines.count(READY) > steps:
            begun, steps = time.monotonic(), lines.count(READY)
        if time.monotonic() - begun > (limit if steps else max(limit, _IMPORTS_S)):
            return _ended("timeout", "Timeout", f"not done after {limit:g} s")
        if most and READY in lines:
            used = _private_bytes(child.pid)
            at_first = used if at_first < 0 else at_first
            if used - at_first > most:
                return _ended("memory", "MemoryLimit", f"used more than {most / 2**30:.3g} GiB of private memory")


def _private_bytes(pid: int) -> int:
    """Returns a process' own memory, swapped pages included; 0 where the system does not tell (other than Linux)."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    own = (line.split() for line in text.splitlines() if line.startswith(("Private_", "Swap:")))
    return sum(int(words[1]) * 1024 for words in own)


def _ended(stage: str, error_class: str, message: str) -> Symptom:
    return {"stage": stage, "error_class": error_class, "operator": "", "message": message}


def same_symptom(one: Symptom, other: Symptom) -> bool:
    """Returns whether two failures look alike: stage and class, and the operator where both know it."""
    if (one["stage"], one["error_class"]) != (other["stage"], other["error_class"]):
        return one["stage"] == other["stage"] and one["stage"] in ENDED
    return not one["operator"] or not other["operator"] or one["operator"] == other["operator"]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(Path(__file__).resolve().parent, sys.argv[1:]))
