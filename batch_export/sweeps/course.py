"""The course of a sweep on the command line, the same for a new run and for one that is resumed.

A `Job` whose folder has its `run.json` arrives; records, summary and reports appear in the
folder, the table on the terminal, and an exit code leaves. torch is never imported.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from batch_export.config.compose import Composed
from batch_export.errors import BatchExportError, UsageError
from batch_export.nouns import counted
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Record
from batch_export.report import run_folder as files
from batch_export.report.formats import SUMMARIES, Subject, write
from batch_export.report.progress import reporter_for
from batch_export.report.rows import rows_of, without_runs
from batch_export.report.since import since_when
from batch_export.report.summary import Counts, Summary, complete, completed, summarise
from batch_export.report.terminal import tell
from batch_export.store import open_store
from batch_export.sweeps import conclude
from batch_export.sweeps.job import Job
from batch_export.sweeps.planned import planned_cells

if TYPE_CHECKING:
    from batch_export.runner.sweep import RunResult


def carry_out(job: Job) -> int:
    """Runs the cells that have no record in the run's folder yet, and finishes the run; returns the exit code."""
    from batch_export.runner.sweep import run_sweep  # lazy: joblib takes 0.4 s, which a usage error need not wait for

    began = time.monotonic()
    reporter = reporter_for(Console(stderr=True, quiet=job.quiet or job.brief))
    try:
        result = run_sweep(job.spec, job.cells, reporter=reporter, run_folder=job.folder, command=job.resume_command)
    except BatchExportError:
        counts = Counts(time.monotonic() - began, interrupted=True)
        write_summary(job, complete(job.cells, map(without_runs, files.each_record(job.folder))), counts)
        raise
    return finish(job, result, began)


def finish(job: Job, result: RunResult, began: float) -> int:
    """Writes what a run came to, and prints it; returns the exit code.

    Args:
        job: what was asked for.
        result: of the run.
        began: when the run began, by `time.monotonic`.
    """
    counts = Counts(wall_s=time.monotonic() - began, interrupted=result.interrupted, **result.counts)
    records = files.write_records(job.folder, completed(job.cells, result.records))
    summary, comparison = conclude.conclude(job, records, write_summary(job, records, counts))
    if not job.quiet:
        since = since_when(job.folder, records)
        tell(Console(), rows_of(records), summary, job.folder, comparison, brief=job.brief, since=since)
    if result.interrupted:
        print(
            f"interrupted with {counted(result.unfinished, 'cell')} to go; what is finished is kept. "
            f"Resume with:\n  {job.resume_command}",
            file=sys.stderr,
        )
    return conclude.exit_code(summary, comparison)


def write_summary(job: Job, records: Sequence[Record], counts: Counts) -> Summary:
    """Writes the summary files of records, one per planned cell; returns what they came to."""
    summary = summarise(rows_of(records), counts, job.command, allow_flaky=job.spec.runner.allow_flaky)
    write(Subject(job.folder, records, summary), SUMMARIES)
    return summary


def sweep_composed(
    composed: Composed,
    command: str,
    *,
    quiet: bool = False,
    brief: bool = False,
    only: Collection[Cell] | None = None,
) -> int:
    """Runs the sweep that the configuration describes, and returns its exit code.

    Args:
        composed: the configuration.
        command: the command line, as it is kept with the run.
        quiet: leaves out progress and table.
        brief: prints only what is not as expected.
        only: the cells to run; all of the matrix when None.

    Raises:
        UsageError: the configuration cannot be meant, or the matrix has none of these cells.
        RunError: a folder cannot be written.
        StoreError: the store is another version's.
    """
    folder, outputs = composed.run_folder, Path(composed.config.output.path).expanduser()
    try:
        for named, text in (
            ("the current folder", os.getcwd()),
            ("output.path", str(outputs)),
            ("the command", command),
        ):
            files.require_text(text, named)
        spec, cells = planned_cells(composed, start=True)
        if only is not None:
            cells = _among(cells, only)
        base = conclude.baseline_for(spec, outputs, cells)
        if base is not None and only is not None:
            base = replace(base, records=tuple(record for record in base.records if record.cell in only))
        files.require_text(spec.store_path, "store.path")
        files.require_writable(Path(spec.store_path), "store.path")
        files.require_writable(outputs, "output.path")  # hydra.run.dir may put the run's folder anywhere else
        files.require_writable(folder, "output.path")
        open_store(Path(spec.store_path).expanduser(), settings=spec.store)
    except BaseException:  # Ctrl-C included
        _forget(folder)
        raise
    for sentence in () if quiet else composed.hidden(spec):
        print(sentence, file=sys.stderr)
    files.hide_from_git(outputs, folder)
    files.write_run(folder, spec, cells, command)
    files.point_latest(outputs, folder)
    known = frozenset(composed.groups.names("model"))
    return carry_out(Job(folder, outputs, spec, cells, command, base, known, quiet, brief))


def _among(cells: Sequence[PlannedCell], only: Collection[Cell]) -> tuple[PlannedCell, ...]:
    chosen = tuple(item for item in cells if item.cell in only)
    if not chosen:
        raise UsageError(
            f"--last-failed: none of the {counted(len(only), 'cell')} that failed last is in this matrix. "
            "Next step: leave the overrides out, and the last run's own are taken"
        )
    return chosen


def _forget(folder: Path) -> None:
    """Removes a run's folder in which nothing but Hydra's own files lie: the run never began."""
    try:
        if {entry.name for entry in folder.iterdir()} <= {".hydra", "batch_export.log"}:
            shutil.rmtree(folder)
            folder.parent.rmdir()
    except OSError:
        return  # the day's folder holds other runs, or was never made
