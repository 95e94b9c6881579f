"""What to do about a failing cell: the verbs that can say more about it, by the stage where it failed. Pure."""

from __future__ import annotations

import shlex

from batch_export.record import PROCESS_STAGES, Cell, Record

QUESTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("capture", "translate", "opset", "dynamic", "load", "run", "mismatch"), ("bisect", "repro")),
    **dict.fromkeys(("check", *PROCESS_STAGES), ("repro",)),
}
"""Verbs that take a failing cell, by stage; a failure of the model or of the machine is not theirs."""
UNASKED = ("NothingFinite", "UsageError")
"""Classes of failures that lie in the model's values alone, where nothing differs, or in a config."""
ASKABLE = ("fail", "xfail")
"""Outcomes of cells that they take."""


def questions(record: Record) -> tuple[str, ...]:
    """Returns the verbs that can say more about a cell, the first first."""
    return verbs_for(record.verdict, record.stage, record.error_class)


def verbs_for(verdict: str, stage: str, error_class: str) -> tuple[str, ...]:
    """The same by what is known of a cell in a history."""
    return QUESTIONS.get(stage, ()) if verdict in ASKABLE and error_class not in UNASKED else ()


def command(verb: str, cell: Cell, run: str = "") -> str:
    """Returns the command line; `run` is the run's folder, by default the newest."""
    return shlex.join(["python", "-m", "batch_export", verb, cell.name, *(["--run", run] if run else [])])
