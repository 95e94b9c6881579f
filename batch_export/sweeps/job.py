"""A sweep that is to be carried out: what is decided before its first cell runs, as one frozen value.

The command line, `resume` and the Python interface make it; the course of a sweep hands it on whole. Plain data.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from batch_export.plan.matrix import PlannedCell
from batch_export.report.runs import Side
from batch_export.report.terminal import folder_text
from batch_export.spec import RunSpec


@dataclass(frozen=True, slots=True)
class Job:
    """What a sweep is asked to do, and where.

    Attributes:
        folder: the run's; `run.json` is in it.
        outputs: where the history lies.
        spec: what was asked for.
        cells: as planned.
        command: the command line that the run was started with.
        base: the baseline, if any.
        known_models: names of all model configs.
        quiet: leaves out progress and table.
        brief: prints only what is not as expected.
    """

    folder: Path
    outputs: Path
    spec: RunSpec
    cells: tuple[PlannedCell, ...]
    command: str
    base: Side | None = None
    known_models: frozenset[str] = frozenset()
    quiet: bool = False
    brief: bool = False

    @property
    def resume_command(self) -> str:
        """The command line that finishes the run, in the words in which it was started."""
        words = shlex.split(self.command)
        program = words[: words.index("batch_export") + 1] if "batch_export" in words else words[:1] or ["batch-export"]
        return shlex.join([*program, "resume", folder_text(self.folder)])
