"""The run that every fault is injected into: one model that takes the blow, and neighbours that must not notice.

A folder arrives; records of a calm run and of the disturbed one leave, and `Outcome`s that say what a fault led to.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from sweeping import Listener, cells, model, sweep

from batch_export.plan.matrix import PlannedCell
from batch_export.record import Record
from batch_export.runner.sweep import RunResult
from batch_export.store import open_store
from batch_export.store.audit import audit

TESTS = Path(__file__).parents[1]
TIMES = ("seconds", "load_s", "seen")
"""What another run has otherwise: a child that is new imports more files than one that has run an action before."""
CULPRIT = "culprit"
NEIGHBOURS = ("left", "right")
OPSETS = (18, 20)
FIRST_ACTION_LIMIT_S = 1.0
"""The limit of a culprit whose first action hangs: no action of its has to be done within it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a fault led to.

    Attributes:
        blamed: what the culprit's cells say, or what the program said.
        kept: what was compared with the undisturbed run and found equal.
    """

    blamed: str
    kept: str


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: injects itself below a folder, asserts what must hold, and says what came of it."""

    name: str
    family: str
    inject: Callable[[Path], Outcome]
    quick: bool = True


def plain(records: Sequence[Record]) -> dict[str, Any]:
    """Records as plain data by cell, without what a clock or the order of children put there."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: strip(item) for name, item in value.items() if name not in TIMES}
        return [strip(item) for item in value] if isinstance(value, list) else value

    return {record.cell.name: strip(msgspec.json.decode(msgspec.json.encode(record))) for record in records}


def matrix(
    *, do: dict[str, str] | None = None, name: str = CULPRIT, limit_s: float = 0.0, **arguments: Any
) -> list[PlannedCell]:
    """Neighbours on both sides of the culprit, which does as it is told; the limit is the culprit's alone."""
    culprit = replace(model(name, do=do or {}, **arguments), timeout_s=limit_s)
    return cells(
        [model(NEIGHBOURS[0]), culprit, model(NEIGHBOURS[1])],
        opsets=OPSETS,
        dynamic=("static", "full"),
    )


@functools.cache
def undisturbed() -> Sequence[Record]:
    """The records when nothing happens, made once for all faults; the units are as in the disturbed run."""
    with tempfile.TemporaryDirectory(prefix="calm-") as folder:
        return tuple(sweep(Path(folder), matrix(), run="run").records)


def calm() -> dict[str, Any]:
    """Plain records of the neighbours when nothing happens."""
    return _of_neighbours(undisturbed())


def neighbours(result: RunResult) -> dict[str, Any]:
    """Plain records of all cells but the culprit's."""
    return _of_neighbours(result.records)


def _of_neighbours(records: Sequence[Record]) -> dict[str, Any]:
    return plain([record for record in records if record.cell.model in NEIGHBOURS])


def disturbed(folder: Path, work: Sequence[PlannedCell], **options: Any) -> tuple[RunResult, Listener]:
    """Runs the matrix in `folder/run`."""
    listener = Listener()
    return sweep(folder / "disturbed", work, run="run", listener=listener, **options), listener


def require_neighbours(folder: Path, result: RunResult, *, logs: bool = True) -> str:
    """Asserts that the neighbours' records are those of a calm run, and that the store is sound.

    Without `logs` the paths of logs are not compared: a machine that is gone has taken them along.
    """
    found, expected = neighbours(result), calm()
    for record in () if logs else (*found.values(), *expected.values()):
        record["log"] = ""
    assert found == expected
    require_sound(folder / "disturbed" / "store")
    return f"{len(neighbours(result))} records identical, store sound"


def require_sound(store: Path) -> None:
    """Asserts that every file in the store is what its name says."""
    found = audit(open_store(store))
    assert found.sound, found
    assert not found.incomplete, found


def blamed(result: RunResult, name: str = CULPRIT) -> str:
    """What the culprit's cells say, without repetitions."""
    said = {
        f"{record.verdict} {record.stage} {record.error_class}".strip()
        for record in result.records
        if record.cell.model == name
    }
    return ", ".join(sorted(said))


def child(folder: Path, code: str, *arguments: str) -> subprocess.Popen[str]:
    """Runs Python code that may import these modules, in a process of its own."""
    path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def processes_below(folder: Path) -> list[int]:
    """Processes other than this that have a file below the folder open."""
    found: set[int] = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                handles = [os.readlink(handle) for handle in (process / "fd").iterdir()]
            except OSError:
                continue
            if any(handle.startswith(str(folder)) for handle in handles):
                found.add(int(process.name))
    return sorted(found)
