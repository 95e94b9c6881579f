"""What belongs to a sweep before and after its cells run: the baseline, history, reports.

Specs, records and summaries arrive; files appear in the run's folder and the outputs, comparisons and exit codes leave.
Nothing is run here but the measurement of suspects, and nothing is printed but warnings; torch is never imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from batch_export.errors import UsageError
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Record
from batch_export.report import run_folder as files
from batch_export.report.annotations import github_lines
from batch_export.report.compare import (
    Comparison,
    Thresholds,
    compare,
    confirmed,
    for_comparison,
    suspects,
)
from batch_export.report.compare_text import comparison_json, comparison_markdown
from batch_export.report.disagreements import disagreements
from batch_export.report.expectations import stale, stale_exclusions
from batch_export.report.formats import REPORTS, SUMMARIES, Subject, write
from batch_export.report.history import HISTORY_FILE, open_history
from batch_export.report.rows import rows_of
from batch_export.report.runs import Side, read_side, require_common
from batch_export.report.since import since_when
from batch_export.report.summary import Summary
from batch_export.runner.surroundings import circumstances
from batch_export.spec import RunSpec
from batch_export.sweeps.job import Job


def baseline_for(spec: RunSpec, outputs: Path, cells: Sequence[PlannedCell]) -> Side | None:
    """Reads the baseline that the sweep asks for, before anything runs; None when it asks for none.

    Raises:
        UsageError: there is no such baseline, or it is of another matrix.
    """
    if not spec.baseline:
        return None
    base = read_side(spec.baseline, outputs)
    require_common(base, Side("this sweep", tuple(Record(item.cell, "missing") for item in cells)))
    return base


def conclude(job: Job, records: Sequence[Record], summary: Summary) -> tuple[Summary, Comparison | None]:
    """Compares with the baseline, looks for stale expectations, adds to the history and writes the reports.

    Args:
        job: what was asked for.
        records: judged, one per planned cell.
        summary: of these.
    """
    folder, outputs, spec, base = job.folder, job.outputs, job.spec, job.base
    comparison = None
    if summary.counts.interrupted:
        write(Subject(folder, records, summary), REPORTS)
        return summary, None
    if base is not None:
        new = Side(str(run_name(outputs, folder)), tuple(map(for_comparison, records)), folder, Path(spec.store_path))
        comparison = compared(base, new, spec, say=_warn)
        files.write_whole(folder / "comparison.md", comparison_markdown(comparison).encode())
    summary = replace(
        summary,
        stale_expectations=stale(spec, rows_of(records), job.known_models),
        stale_exclusions=stale_exclusions(spec),
        disagreements=disagreements(records),
        comparison=None if comparison is None else comparison_json(comparison),
    )
    subject = Subject(folder, records, summary, comparison, since=since_when(folder, records))
    write(subject, SUMMARIES)
    remember(outputs, folder, records, summary.command, spec)
    write(subject, REPORTS)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print("\n".join(github_lines(rows_of(records), comparison.marks() if comparison else None)))
    return summary, comparison


def exit_code(summary: Summary, comparison: Comparison | None) -> int:
    """With an accepted baseline only what is worse counts; otherwise what is unexpected counts too."""
    if summary.counts.interrupted or comparison is None:
        return summary.exit_code
    if comparison.accepted and not summary.nothing_tested:
        return comparison.exit_code
    return summary.exit_code or comparison.exit_code


def compared(
    base: Side,
    new: Side,
    spec: RunSpec | None,
    *,
    thresholds: Thresholds | None = None,
    measure: bool = True,
    busy: bool = False,
    say: Callable[[str], None] | None = None,
) -> Comparison:
    """Compares two sides; suspects are measured again when the new side's files are at hand.

    With `busy` that goes for cells as well whose latencies were measured on a busy machine.

    Raises:
        UsageError: the sides have no cell in common.
    """
    require_common(base, new)
    thresholds = thresholds or Thresholds()
    found = compare(
        base.records, new.records, base_name=base.name, new_name=new.name, thresholds=thresholds, accepted=base.accepted
    )
    wanted = suspects(found, busy=busy)
    if not wanted or not measure or spec is None or new.store is None:
        return found
    from batch_export.runner.remeasure import remeasure  # lazy: seldom needed
    from batch_export.store import open_store

    new_store = open_store(new.store)
    base_store = open_store(base.store) if base.store is not None and base.store.is_dir() else new_store
    facts = remeasure(
        wanted,
        {record.cell: record for record in base.records},
        {record.cell: record for record in new.records},
        base_store,
        new_store,
        {provider.name: provider for provider in spec.matrix.providers},
        threads=spec.measure.threads,
        budget_s=max(2.0, spec.measure.budget_s),
        say=say,
    )
    return confirmed(found, facts, thresholds.latency)


def remember(outputs: Path, folder: Path, records: Sequence[Record], command: str, spec: RunSpec) -> None:
    """Adds the run to the history; a history that cannot be used costs a warning, for nothing is lost with it."""
    try:
        with open_history(outputs / HISTORY_FILE) as history:
            history.add(run_name(outputs, folder), circumstances(folder), command, records, spec)
    except UsageError as error:
        _warn(f"this run is not in the history: {error}")


def run_name(outputs: Path, folder: Path) -> str:
    """What a run is called in the history: its folder below the outputs."""
    try:
        return folder.absolute().relative_to(outputs.absolute()).as_posix()
    except ValueError:
        return folder.name


def _warn(text: str) -> None:
    print(text, file=sys.stderr)
