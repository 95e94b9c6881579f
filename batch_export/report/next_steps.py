"""What to do about a failing cell: the verbs that can say more about it, by the stage where it failed. Pure."""

from __future__ import annotations

import shlex

from batch_export.record import Cell, Record

QUESTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("capture", "translate", "opset", "dynamic", "load", "run", "mismatch"), ("bisect", "repro")),
    **dict.fromkeys(("check", "crash", "timeout", "memory"), ("repro",)),
}
"""Verbs that take a failing cell, by stage; a failure of the model or of the machine is not theirs."""
ASKABLE = ("fail", "xfail")
"""Outcomes of cells that they take."""


def questions(record: Record) -> tuple[str, ...]:
    """Returns the verbs that can say more about a cell, the first first."""
    return QUESTIONS.get(record.stage, ()) if record.verdict in ASKABLE else ()


def command(verb: str, cell: Cell, run: str = "") -> str:
    """Returns the command line; `run` is the run's folder, by default the newest."""
    return shlex.join(["python", "-m", "batch_export", verb, cell.name, *(["--run", run] if run else [])])
