"""The course of a sweep on the command line, the same for a new run and for one that is resumed.

A run's folder with its `run.json`, the spec and the planned cells arrive; records, summary and reports appear in the
folder, the table on the terminal, and an exit code leaves. torch is never imported.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from batch_export import sweeping
from batch_export.errors import BatchExportError
from batch_export.matrix import PlannedCell
from batch_export.nouns import counted
from batch_export.record import Record
from batch_export.report import run_folder as files
from batch_export.report.formats import SUMMARIES, Subject, write
from batch_export.report.progress import reporter_for
from batch_export.report.rows import rows_of, without_runs
from batch_export.report.runs import Side
from batch_export.report.story import folder_text, tell
from batch_export.report.summary import Counts, Summary, complete, completed, summarise
from batch_export.spec import RunSpec

if TYPE_CHECKING:
    from batch_export.runner.sweep import RunResult


def run_planned(
    folder: Path,
    outputs: Path,
    spec: RunSpec,
    cells: Sequence[PlannedCell],
    command: str,
    base: Side | None,
    known_models: Collection[str],
    *,
    quiet: bool = False,
) -> int:
    """Runs the cells that have no record in the folder yet, and finishes the run.

    Args:
        folder: the run's; `run.json` is in it.
        outputs: where the history lies.
        spec: what was asked for.
        cells: as planned.
        command: the command line that the run was started with.
        base: the baseline, if any.
        known_models: names of all model configs.
        quiet: leaves out progress and table.
    """
    from batch_export.runner.sweep import run_sweep  # lazy: joblib takes 0.4 s, which a usage error need not wait for

    began = time.monotonic()
    reporter = reporter_for(Console(stderr=True, quiet=quiet))
    resume = resume_command(command, folder)
    try:
        result = run_sweep(spec, cells, reporter=reporter, run_folder=folder, command=resume)
    except BatchExportError:
        counts = Counts(time.monotonic() - began, interrupted=True)
        records = complete(cells, map(without_runs, files.each_record(folder)))
        write_summary(folder, spec, records, counts, command)
        raise
    return finish(folder, outputs, spec, cells, result, command, base, known_models, began=began, quiet=quiet)


def finish(
    folder: Path,
    outputs: Path,
    spec: RunSpec,
    cells: Sequence[PlannedCell],
    result: RunResult,
    command: str,
    base: Side | None,
    known_models: Collection[str],
    *,
    began: float,
    quiet: bool = False,
) -> int:
    """Writes what a run came to, and tells it; returns the exit code.

    Args:
        folder, outputs, spec, cells, command, base, known_models, quiet: as for `run_planned`.
        result: of the run.
        began: when the run began, by `time.monotonic`.
    """
    counts = Counts(wall_s=time.monotonic() - began, interrupted=result.interrupted, **result.counts)
    records = files.write_records(folder, completed(cells, result.records))
    summary = write_summary(folder, spec, records, counts, command)
    summary, comparison = sweeping.conclude(folder, outputs, spec, records, summary, base, known_models)
    if not quiet:
        tell(Console(), rows_of(records), summary, folder, comparison)
    if result.interrupted:
        resume = resume_command(command, folder)
        print(
            f"interrupted with {counted(result.unfinished, 'cell')} to go; what is finished is kept. "
            f"Resume with:\n  {resume}",
            file=sys.stderr,
        )
    return sweeping.exit_code(summary, comparison)


def write_summary(folder: Path, spec: RunSpec, records: Sequence[Record], counts: Counts, command: str = "") -> Summary:
    """Writes the summary files of records, one per planned cell; returns what they came to."""
    summary = summarise(rows_of(records), counts, command, allow_flaky=spec.runner.allow_flaky)
    write(Subject(folder, records, summary), SUMMARIES)
    return summary


def resume_command(command: str, folder: Path) -> str:
    """Returns the command line that finishes a run, in the words in which the run was started."""
    words = shlex.split(command)
    program = words[: words.index("batch_export") + 1] if "batch_export" in words else words[:1] or ["batch-export"]
    return shlex.join([*program, "resume", folder_text(folder)])
