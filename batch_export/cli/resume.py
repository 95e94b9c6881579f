"""`resume [RUN]`: finishes what is left of a run, in its own folder, from its `run.json`.

Which cells were planned, and with what, is read from the folder; records that are there are kept. The final files are
those of a run that nothing disturbed, but for times.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_outputs, offered_runs
from batch_export.cli.origin import enter
from batch_export.config.compose import Composed, compose_and_call
from batch_export.config.run import ENGINES
from batch_export.errors import UsageError
from batch_export.nouns import counted
from batch_export.report import run_folder as files
from batch_export.report.runs import all_runs, resolve_run
from batch_export.report.terminal import folder_text
from batch_export.runner.config_folders import folders_of_run
from batch_export.spec import RunnerSpec
from batch_export.sweeps import conclude
from batch_export.sweeps.course import carry_out
from batch_export.sweeps.job import Job
from batch_export.sweeps.store_place import require_place_of_its_own


def run(arguments: list[str]) -> int:
    """Finishes the run and returns its exit code."""
    parser = VerbParser("resume", "Finishes what is left of a run that was interrupted or killed.")
    parser.add_argument("run", nargs="?", help="folder of the run; by default the newest that is not finished")
    parser.add_argument("--runner", choices=ENGINES, help="where the rest is run, if not where the run was started")
    parser.add_argument("--address", metavar="TCP", help="of a dask scheduler; implies --runner dask")
    add_outputs(parser)
    asked = parser.parse_args(arguments)
    folder = resolve_run(asked.run, asked.outputs) if asked.run else newest_unfinished(asked.outputs)
    files.read_run(folder)  # a run of a newer version is refused before anything is said of it
    if is_finished(folder):
        counts = files.read_counts(folder)
        ran = counted(counts.ran, "action")
        print(f"{folder_text(folder)} is finished (ran {ran}, {counts.cached} cached); nothing is left")
        return 0
    where = asked.runner, asked.address
    return compose_and_call(lambda composed: _finish(composed, folder, *where), [], leave_no_trace=True)


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return () if before else offered_runs(before)


def _finish(composed: Composed, folder: Path, engine: str | None = None, address: str | None = None) -> int:
    stored = files.read_run(folder)
    spec = replace(stored.spec, runner=elsewhere(stored.spec.runner, engine, address))
    cells = stored.cells()
    files.require_writable(Path(stored.spec.store_path), "store.path")
    files.require_writable(folder, "output.path")
    outputs = folder.parent.parent
    enter(folder)
    require_place_of_its_own(spec, folders_of_run(folder))
    base = conclude.baseline_for(stored.spec, outputs, cells)
    known = frozenset([*composed.groups.names("model"), *(model.name for model in stored.spec.matrix.models)])
    job = Job(folder, outputs, spec, cells, stored.command, base, known)
    print(f"resuming {folder_text(folder)}: {job.resume_command}", file=sys.stderr)
    return carry_out(job)


def elsewhere(runner: RunnerSpec, engine: str | None, address: str | None) -> RunnerSpec:
    """Returns how the rest of a run is run; what is run does not change with it.

    Raises:
        UsageError: an address is given for a run on this machine.
    """
    if engine == "local" and address:
        raise UsageError("resume: --address is a dask scheduler's. Next step: leave it out, or say --runner dask")
    if address is not None:
        return replace(runner, engine="dask", address=address)
    if engine is None or engine == runner.engine:
        return runner
    return replace(runner, engine=engine, address="")


def newest_unfinished(outputs: Path) -> Path:
    """Returns the folder of the newest run that is not finished and that no process is working on.

    Raises:
        UsageError: there is none.
    """
    from batch_export.runner.records_file import is_taken  # lazy: see above

    runs: Sequence[Path] = all_runs(outputs)
    for folder in reversed(runs):
        if not is_finished(folder) and not is_taken(folder):
            return folder.resolve()
    raise UsageError(f"no run below {outputs} is unfinished. Next step: name a folder, or another one with --outputs")


def is_finished(folder: Path) -> bool:
    """Whether every cell of a run has a record that says something about the cell, and the summary was written."""
    summary = files.read_summary(folder)
    if summary is None or summary.get("interrupted", True) or summary.get("missing", 1):
        return False
    return not any(
        record.failure is not None and record.failure.stage == "environment" for record in files.read_records(folder)
    )
