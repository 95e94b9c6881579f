"""A run: from planned cells to judged records.

Cells arrive, records leave, one by one to the reporter and to `records.jsonl`. No model is run here, and torch is never
imported. What is cached is recorded at once (`settling.py`); the rest goes to children by units of work, several at a
time, and what has to be measured waits until the machine is quiet (`dispatch.py`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from batch_export import steps
from batch_export.environments.making import environment_for
from batch_export.errors import BatchExportError
from batch_export.plan import walk as plan
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Record
from batch_export.runner.config_folders import folders_of_run
from batch_export.runner.interruption import stopping_on_interrupt
from batch_export.runner.launcher import Staying, can_fork
from batch_export.runner.launchers import Launchers
from batch_export.runner.predecessors import wait_for_their_end
from batch_export.runner.preload import preload_for
from batch_export.runner.records_file import LOGS_NAME, RecordsFile
from batch_export.runner.reporter import Reporter
from batch_export.runner.results import Results
from batch_export.runner.settling import Settling
from batch_export.runner.site import Site
from batch_export.runner.surroundings import Surroundings, surroundings_of
from batch_export.runner.warnings_once import Warnings
from batch_export.sources.closure import local_roots
from batch_export.sources.file_digests import remember_in
from batch_export.sources.import_names import ImportNames
from batch_export.sources.toolchain import Toolchain, toolchain_for
from batch_export.spans import seconds_of
from batch_export.spec import RunnerSpec, RunSpec
from batch_export.store import digests_memo, imports_memo, open_store


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run.

    Attributes:
        records: one per finished cell, in the order of the planned cells; they stay in `records.jsonl` and are read
            from there at every pass, as long as that is not written anew.
        interrupted: whether Ctrl-C ended the run.
        unfinished: cells without a record.
        wall_s: seconds in all.
        counts: distinct actions that were executed (`ran`), served from the store (`cached`), or executed with a
            failure that is never cached (`rerun_failures`).
    """

    records: Sequence[Record]
    interrupted: bool
    unfinished: int
    wall_s: float
    counts: Mapping[str, int] = field(default_factory=dict)


def run_sweep(
    spec: RunSpec,
    cells: Sequence[PlannedCell],
    *,
    reporter: Reporter,
    run_folder: Path,
    command: str,
    stages: Mapping[str, str] | None = None,
    preload: Sequence[str] | None = None,
) -> RunResult:
    """Runs the cells that have no record in the run's folder yet.

    Records that say something about the machine at that moment (stage `environment`) are made again.

    Args:
        spec: what was asked for.
        cells: the expanded matrix.
        reporter: told of everything that happens.
        run_folder: takes `records.jsonl` and the logs.
        command: the command line that goes on where a run stopped.
        stages: modules of the steps, by default `steps.modules()`.
        preload: what children have imported from the start; by default what the models that have to be run need.

    Raises:
        StoreError: the store cannot be used.
        RunError: the run cannot go on; records that were written are kept.
        EnvironmentUnavailableError: an environment is gone since the cells were planned, and cannot be made again.
    """
    began = time.monotonic()
    to_run = [cell for cell in cells if not cell.skip]
    models = {cell.cell.model: cell.model for cell in to_run}
    exporters = {cell.cell.exporter: cell.exporter for cell in to_run}
    place = Path(spec.store_path).expanduser()
    for requirements in sorted({cell.environment for cell in to_run} - {()}):
        environment_for(requirements, layered=True, tell=reporter.message)  # one may have been removed since
    names = ImportNames(imports_memo(place))
    remember_in(digests_memo(place), reporter.message)
    providers = {cell.cell.provider: cell.provider for cell in to_run}.values()
    logs = run_folder / LOGS_NAME
    if preload is None:
        preload = preload_for(to_run, spec.store)
    stop = threading.Event()
    warnings = Warnings(reporter.message)
    launcher = Launchers(logs, preload, tuple(map(str, local_roots())), stop)
    with RecordsFile(run_folder) as records, contextlib.closing(launcher):
        wait_for_their_end(launcher.log)  # whoever had the records before us may have been killed a moment ago
        if to_run and _begins_with_nothing(spec, place):
            launcher.prepare()  # while we read our own files and the models'
        toolchain = toolchain_for(models.values(), exporters.values(), names=names, store=place, providers=providers)
        launcher.staying = _staying(spec.runner, toolchain, warnings.tell)
        surroundings, changed = surroundings_of(run_folder, toolchain, folders_of_run(run_folder))
        store = open_store(
            place,
            tuple(map(Path, toolchain.roots)),
            spec.store,
            run=surroundings.run,
            warn=warnings.tell,
        )
        store.remember_imports(names.news())
        site = Site(
            store=store,
            launcher=launcher,
            toolchain=toolchain,
            settings=plan.PlanSettings(spec.runner.threads, spec.measure),
            runner=spec.runner,
            logs=logs.absolute(),
            stages=stages or steps.modules(),
            results=Results(store, refresh=spec.measure.refresh),
            stop=stop,
            warn=warnings.tell,
        )
        settling = Settling(spec, cells, site, records, reporter)
        reporter.started([cell.cell for cell in cells])
        try:
            with store.in_use():
                settling.keep(records.found, changed)
                interrupted = _run(spec, cells, site, settling, reporter, preload, surroundings)
        except BatchExportError:
            reporter.message(f"The run stopped; its records are kept. This goes on from there: {command}")
            raise
        finally:
            site.results.close()
            reporter.finished()
    finished = settling.records()
    return RunResult(
        records=finished,
        interrupted=interrupted,
        unfinished=len(cells) - len(finished),
        wall_s=time.monotonic() - began,
        counts=site.results.counts(),
    )


def _begins_with_nothing(spec: RunSpec, place: Path) -> bool:
    """Whether it is sure that children are needed, and that no server has stayed that they could come from."""
    if spec.runner.engine == "dask" or spec.store.remote or seconds_of(spec.runner.keep_alive):
        return False
    return not any((place / "actions").iterdir()) if (place / "actions").is_dir() else True


def _staying(runner: RunnerSpec, toolchain: Toolchain, warn: Callable[[str], None]) -> Staying | None:
    """The server that stays, if it was asked for where it may be: not in a CI job, whose processes end with it."""
    idle_s = seconds_of(runner.keep_alive)
    if not idle_s or not can_fork() or os.environ.get("CI", "").lower() not in ("", "0", "false"):
        return None
    return Staying(idle_s, toolchain, warn)


def _run(
    spec: RunSpec,
    cells: Sequence[PlannedCell],
    site: Site,
    settling: Settling,
    reporter: Reporter,
    preload: Sequence[str],
    surroundings: Surroundings,
) -> bool:
    """Brings every cell to its record, and returns whether Ctrl-C kept it from that."""
    seconds: dict[str, float] = {}
    try:
        with stopping_on_interrupt(site.stop):
            on_cluster = spec.runner.engine == "dask"
            todo = []
            if not on_cluster:
                todo = settling.from_store(surroundings.split, missing=site.launcher.prepare)
            if not (on_cluster or todo or settling.to_measure()):
                return False
            from batch_export.runner.dispatch import Dispatch  # lazy: for nothing if all is cached

            dispatch = Dispatch(spec, site, settling, reporter, surroundings)
            seconds = dispatch.seconds
            if on_cluster:
                dispatch.on_cluster(cells, preload)
                return False
            if todo:
                dispatch.in_parallel(todo)
            dispatch.one_by_one()
    except KeyboardInterrupt:
        site.stop.set()
        return True
    except BaseException:
        site.stop.set()
        raise
    finally:
        if seconds:
            with contextlib.suppress(BatchExportError):  # a hint for the next run, not worth this one's end
                site.store.remember_durations(seconds)
    return False
