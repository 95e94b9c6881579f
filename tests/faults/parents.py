"""Faults of the parent: killed at any moment, interrupted, ended by the system, two at once, clocks that jump."""

from __future__ import annotations

import functools
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

from sweeping import sweep

from batch_export.runtime.measuring import MeasureSpec
from faults.scene import (
    FIRST_ACTION_LIMIT_S,
    Fault,
    Outcome,
    blamed,
    calm,
    child,
    disturbed,
    matrix,
    neighbours,
    plain,
    processes_below,
    require_neighbours,
    require_sound,
)

KILLS = 20
RUN = """
import sys
from pathlib import Path
from batch_export.runtime.measuring import MeasureSpec
from faults.scene import matrix
from sweeping import Listener, sweep

class Telling(Listener):
    def started(self, cells):
        print("started", flush=True)

sweep(Path(sys.argv[1]), matrix(do={"Translate@20": "segfault"}), run="run", measure=MeasureSpec(), listener=Telling())
"""
RACER = """
import sys
from pathlib import Path
from faults.scene import matrix
from sweeping import sweep

result = sweep(Path(sys.argv[1]), matrix(), run=sys.argv[2])
print(result.counts["ran"], len(result.records), {record.verdict for record in result.records})
"""


def faults() -> list[Fault]:
    """All faults of this family."""
    return [
        Fault(
            f"SIGKILL of the parent, moment {number + 1} of {KILLS}",
            "parent",
            functools.partial(_killed, number),
            quick=number in (5, 12),
        )
        for number in range(KILLS)
    ] + [
        Fault("Ctrl-C", "parent", functools.partial(_interrupted, signal.SIGINT)),
        Fault("SIGTERM of the parent", "parent", functools.partial(_interrupted, signal.SIGTERM), quick=False),
        Fault("SIGKILL of the forkserver", "parent", _forkserver_killed),
        Fault("two sweeps race on one store", "parent", _racing),
        Fault("the clock jumps a year ahead and back", "parent", _clock),
        Fault("a torn last line of records.jsonl", "parent", _torn),
    ]


@functools.cache
def _whole() -> tuple[dict[str, Any], float, Any]:
    """What a run that nobody ends leaves, and how long it takes; made once for all faults."""
    with tempfile.TemporaryDirectory(prefix="whole-") as folder:
        began = time.monotonic()
        result = sweep(Path(folder), matrix(do={"Translate@20": "segfault"}), run="run", measure=MeasureSpec())
        return _comparable(result.records), time.monotonic() - began, result.counts


def _comparable(records: Any) -> dict[str, Any]:
    found = plain(records)
    for record in found.values():
        if record["failure"]:  # a stack dump and a peak of memory are not twice the same
            record["failure"]["details"] = record["failure"]["message"] = record["message"] = ""
    return found


def _resumed(folder: Path) -> Any:
    work = matrix(do={"Translate@20": "segfault"})
    result = sweep(folder / "disturbed", work, run="run", measure=MeasureSpec())
    assert not processes_below(folder / "disturbed")
    require_sound(folder / "disturbed" / "store")
    return result


def _killed(number: int, folder: Path) -> Outcome:
    whole, seconds, counts = _whole()
    with child(folder / "disturbed", RUN) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds * (number + random.random()) / KILLS)
        process.kill()
    result = _resumed(folder)
    assert _comparable(result.records) == whole
    assert result.counts == counts
    return Outcome("nobody; the children ended", f"after resume all {len(whole)} records and counts identical")


def _interrupted(number: int, folder: Path) -> Outcome:
    whole, seconds, counts = _whole()
    with child(folder / "disturbed", RUN) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds / 3)
        process.send_signal(number)
        process.wait()
    result = _resumed(folder)
    assert _comparable(result.records) == whole
    assert result.counts == counts
    return Outcome("nobody; the children ended", f"after resume all {len(whole)} records and counts identical")


def _forkserver_killed(folder: Path) -> Outcome:
    from batch_export.errors import RunError

    whole, _, _ = _whole()
    with child(folder / "disturbed", RUN) as process:
        assert process.stdout is not None
        process.stdout.readline()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            servers = [pid for pid in processes_below(folder / "disturbed") if _is_server(pid, process.pid)]
            if servers:
                os.kill(servers[0], signal.SIGKILL)
                break
            time.sleep(0.01)
        said = process.stdout.read()
        process.wait()
    result = _resumed(folder)
    assert _comparable(result.records) == whole
    assert RunError.__name__ in said or process.returncode == 0, said
    return Outcome("the run stops and says why", f"after resume all {len(whole)} records identical")


def _is_server(pid: int, parent: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(stat[1]) == parent and b"forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _racing(folder: Path) -> Outcome:
    calm_records = calm()
    racers = [child(folder / "disturbed", RACER, f"run-{name}") for name in "ab"]
    said = [racer.communicate()[0].strip().splitlines()[-1] for racer in racers]
    ran = [int(line.split()[0]) for line in said]
    assert all(line.endswith("12 {'pass'}") for line in said), said
    expected = 3 + 6 + 3 * 12
    # What both translate from, both capture, since programs are not stored; nothing else is done twice.
    assert expected <= sum(ran) <= expected + 6, said
    result, _ = disturbed(folder, matrix())
    assert neighbours(result).keys() == calm_records.keys()
    assert result.counts["ran"] == 0
    require_sound(folder / "disturbed" / "store")
    return Outcome(f"nobody; {ran[0]} + {ran[1]} actions for {expected}", "12 records of each pass, store sound")


def _clock(folder: Path) -> Outcome:
    real = time.time
    jumps = iter([365 * 86400.0, -365 * 86400.0, 0.0] * 100_000)
    with mock.patch("time.time", side_effect=lambda: real() + next(jumps)):
        result, _ = disturbed(folder, matrix(do={"Reference": "hang"}, limit_s=FIRST_ACTION_LIMIT_S))
    assert blamed(result) == "fail timeout Timeout"
    return Outcome(blamed(result), require_neighbours(folder, result))


def _torn(folder: Path) -> Outcome:
    disturbed(folder, matrix())
    path = folder / "disturbed" / "run" / "records.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 100])
    result, listener = disturbed(folder, matrix())
    assert listener.messages[0] == "11 of 12 cells have their records already"
    return Outcome("nobody", require_neighbours(folder, result))
