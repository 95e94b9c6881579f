"""The course of a sweep on the command line, the same for a new run and for one that is resumed.

A `Job` whose folder has its `run.json` arrives; records, summary and reports appear in the
folder, the table on the terminal, and an exit code leaves. torch is never imported.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from batch_export.config.compose import Composed
from batch_export.errors import BatchExportError
from batch_export.nouns import counted
from batch_export.record import Record
from batch_export.report import run_folder as files
from batch_export.report.formats import SUMMARIES, Subject, write
from batch_export.report.progress import reporter_for
from batch_export.report.rows import rows_of, without_runs
from batch_export.report.summary import Counts, Summary, complete, completed, summarise
from batch_export.report.terminal import tell
from batch_export.sweeps import conclude
from batch_export.sweeps.job import Job
from batch_export.sweeps.planned import planned_cells

if TYPE_CHECKING:
    from batch_export.runner.sweep import RunResult


def carry_out(job: Job) -> int:
    """Runs the cells that have no record in the run's folder yet, and finishes the run; returns the exit code."""
    from batch_export.runner.sweep import run_sweep  # lazy: joblib takes 0.4 s, which a usage error need not wait for

    began = time.monotonic()
    reporter = reporter_for(Console(stderr=True, quiet=job.quiet))
    try:
        result = run_sweep(job.spec, job.cells, reporter=reporter, run_folder=job.folder, command=job.resume_command)
    except BatchExportError:
        counts = Counts(time.monotonic() - began, interrupted=True)
        write_summary(job, complete(job.cells, map(without_runs, files.each_record(job.folder))), counts)
        raise
    return finish(job, result, began)


def finish(job: Job, result: RunResult, began: float) -> int:
    """Writes what a run came to, and tells it; returns the exit code.

    Args:
        job: what was asked for.
        result: of the run.
        began: when the run began, by `time.monotonic`.
    """
    counts = Counts(wall_s=time.monotonic() - began, interrupted=result.interrupted, **result.counts)
    records = files.write_records(job.folder, completed(job.cells, result.records))
    summary, comparison = conclude.conclude(job, records, write_summary(job, records, counts))
    if not job.quiet:
        tell(Console(), rows_of(records), summary, job.folder, comparison)
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


def sweep_composed(composed: Composed, command: str, *, quiet: bool = False) -> int:
    """Runs the sweep that the configuration describes; `quiet` leaves out progress and table."""
    folder, outputs = composed.run_folder, Path(composed.config.output.path).expanduser()
    try:
        spec, cells = planned_cells(composed, start=True)
        base = conclude.baseline_for(spec, outputs, cells)
        files.require_writable(Path(spec.store_path), "store.path")
        files.require_writable(outputs, "output.path")  # hydra.run.dir may put the run's folder anywhere else
        files.require_writable(folder, "output.path")
    except BaseException:  # Ctrl-C included
        _forget(folder)
        raise
    for sentence in () if quiet else composed.hidden(spec):
        print(sentence, file=sys.stderr)
    files.write_run(folder, spec, cells, command)
    files.point_latest(outputs, folder)
    known = frozenset(composed.groups.names("model"))
    return carry_out(Job(folder, outputs, spec, cells, command, base, known, quiet))


def _forget(folder: Path) -> None:
    """Removes a run's folder in which nothing but Hydra's own files lie: the run never began."""
    try:
        if {entry.name for entry in folder.iterdir()} <= {".hydra", "batch_export.log"}:
            shutil.rmtree(folder)
            folder.parent.rmdir()
    except OSError:
        return  # the day's folder holds other runs, or was never made
