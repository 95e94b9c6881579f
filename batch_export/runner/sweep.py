"""A run: from planned cells to judged records. The parent's side of everything: it looks up, supervises and writes
down.

Cells arrive, records leave, one by one to the reporter and to `records.jsonl`. No model is run here, and torch is never
imported. What is cached is recorded at once; the rest goes to children by units of work, several at a time; what has
to be measured waits until the machine is quiet and goes to one child at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from batch_export import steps
from batch_export.errors import BatchExportError
from batch_export.judge.verdict import judge
from batch_export.nouns import counted
from batch_export.plan import walk as plan
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Failure, Record
from batch_export.runner.assemble import assemble, skipped
from batch_export.runner.estimates import estimated
from batch_export.runner.interruption import stopping_on_interrupt
from batch_export.runner.launcher import Launcher
from batch_export.runner.predecessors import wait_for_their_end
from batch_export.runner.prefetch import prefetch
from batch_export.runner.preload import preload_for
from batch_export.runner.records_file import LOGS_NAME, RecordsFile
from batch_export.runner.reporter import Lane, Reporter
from batch_export.runner.results import Results, View
from batch_export.runner.stored_records import Place, StoredRecords
from batch_export.runner.surroundings import Surroundings, surroundings_of, write_surroundings
from batch_export.runner.unit_runner import Site, UnitRunner
from batch_export.runner.units import Unit, by_model, group, in_order, split_groups
from batch_export.runner.warnings_once import Warnings
from batch_export.sources.file_digests import remember_in
from batch_export.sources.import_names import ImportNames
from batch_export.sources.toolchain import toolchain_for
from batch_export.spec import RunSpec
from batch_export.store import digests_memo, imports_memo, open_store

_ENDING_LIMIT_S = 10.0
"""How long an interrupted run waits for the threads that end its children."""


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
    """
    began = time.monotonic()
    to_run = [cell for cell in cells if not cell.skip]
    models = {cell.cell.model: cell.model for cell in to_run}
    exporters = {cell.cell.exporter: cell.exporter for cell in to_run}
    place = Path(spec.store_path).expanduser()
    names = ImportNames(imports_memo(place))
    remember_in(digests_memo(place), reporter.message)
    toolchain = toolchain_for(models.values(), exporters.values(), names=names, store=place)
    logs = run_folder / LOGS_NAME
    if preload is None:
        preload = preload_for(to_run, spec.store)
    stop = threading.Event()
    launcher = Launcher(logs, preload, toolchain.roots, stop)
    warnings = Warnings(reporter.message)
    with RecordsFile(run_folder) as records, contextlib.closing(launcher):
        wait_for_their_end(launcher.log)  # whoever had the records before us may have been killed a moment ago
        surroundings, changed = surroundings_of(run_folder, toolchain)
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
        sweep = _Sweep(spec, cells, site, records, reporter, tuple(preload), surroundings)
        reporter.started([cell.cell for cell in cells])
        try:
            with store.in_use():
                sweep.keep(records.found, changed)
                interrupted = sweep.run()
        except BatchExportError:
            reporter.message(f"The run stopped; its records are kept. This goes on from there: {command}")
            raise
        finally:
            site.results.close()
            reporter.finished()
    finished = sweep.records()
    return RunResult(
        records=finished,
        interrupted=interrupted,
        unfinished=len(cells) - len(finished),
        wall_s=time.monotonic() - began,
        counts=site.results.counts(),
    )


class _Sweep:
    """The course of one run."""

    def __init__(
        self,
        spec: RunSpec,
        cells: Sequence[PlannedCell],
        site: Site,
        records: RecordsFile,
        reporter: Reporter,
        preload: tuple[str, ...],
        surroundings: Surroundings,
    ) -> None:
        self._spec = spec
        self._cells = cells
        self._site = site
        self._file = records
        self._reporter = reporter
        self._preload = preload
        self._surroundings = surroundings
        self._hosts: list[dict[str, str]] = []
        self._lock = threading.Lock()
        self._places: dict[Cell, Place] = {}
        self._to_measure: dict[Cell, PlannedCell] = {}
        self._logs: dict[Cell, str] = {}
        self._seconds: dict[str, float] = {}
        self._working = 0
        self._idle = threading.Condition()

    def keep(self, found: StoredRecords, changed: Sequence[str]) -> None:
        """Takes over the records that an earlier process of this run wrote.

        Args:
            found: those records; of two for one cell the later counts.
            changed: what is no longer as it was when the run began.
        """
        planned = {cell.cell for cell in self._cells}
        for place, record in zip(found.places, found, strict=True):
            if _is_to_be_made_again(record):
                self._places.pop(record.cell, None)
            elif record.cell in planned:
                self._places[record.cell] = place
        for record in self.records():
            self._site.results.adopt(record)
            self._reporter.record(record)
        if self._places:
            self._reporter.message(f"{len(self._places)} of {len(self._cells)} cells have their records already")
            if changed:
                self._reporter.message(f"since this run began there changed: {', '.join(changed)}")

    def run(self) -> bool:
        """Brings every cell to its record, and returns whether Ctrl-C kept it from that."""
        stop = self._site.stop
        try:
            with stopping_on_interrupt(stop):
                if self._spec.runner.engine == "dask":
                    self._on_cluster()
                else:
                    todo = self._from_cache()
                    self._in_parallel(todo)
                    self._one_by_one()
        except KeyboardInterrupt:
            stop.set()
            return True
        except BaseException:
            stop.set()
            raise
        finally:
            if self._seconds:
                with contextlib.suppress(BatchExportError):  # a hint for the next run, not worth this one's end
                    self._site.store.remember_durations(self._seconds)
        return False

    def records(self) -> StoredRecords:
        """Returns the records so far, in the order of the planned cells, as they lie in the run's folder."""
        return self._file.at([self._places[cell.cell] for cell in self._cells if cell.cell in self._places])

    def _from_cache(self) -> list[PlannedCell]:
        todo: list[PlannedCell] = []
        split = self._surroundings.split
        before = [] if split is None else group([cell for cell in self._cells if not cell.skip], 0, split=split)
        logs = {cell.cell: f"{LOGS_NAME}/{unit.log_name}" for unit in before for cell in unit.cells}
        hosts: list[dict[str, str] | None] = [*self._hosts] or [None]
        cached = [self._site.results.view(host) for host in hosts]
        if self._site.store.remote is not None:
            left = [cell for cell in self._cells if not cell.skip and cell.cell not in self._places]
            prefetch(left, self._site.results, self._follow_cell)
        for cell in self._cells:
            if cell.cell in self._places:
                continue
            if cell.skip:
                self._write(skipped(cell, cell.skip))
            elif not self._settle(cell, self._most_complete(cell, cached), logs.get(cell.cell, ""), None):
                todo.append(cell)
        return todo

    def _units(self, cells: Sequence[PlannedCell], workers: int) -> list[Unit]:
        """Returns the units in the order in which they start; a run that goes on makes them as it did before."""
        seconds = self._site.store.durations()
        units = group(cells, workers, seconds, self._surroundings.split)
        if units and self._surroundings.split is None:
            self._surroundings = replace(self._surroundings, split=split_groups(units))
            write_surroundings(self._site.logs.parent, self._surroundings)
        return in_order(units, estimated(units, seconds))

    def _most_complete(self, cell: PlannedCell, views: Sequence[View]) -> View:
        """Returns the view of the host on which the cell was measured already, or the first."""
        if len(views) == 1:
            return views[0]
        return next((view for view in views if self._resolve(cell, view).pending is None), views[0])

    def _in_parallel(self, cells: Sequence[PlannedCell]) -> None:
        if not cells:
            return
        from joblib import Parallel, delayed, effective_n_jobs  # lazy: with numpy 0.2 s, for nothing if all is cached

        workers = effective_n_jobs(self._spec.runner.n_jobs)
        units = self._units(cells, workers)
        lanes = [self._lane(units, workers)]
        if self._spec.measure.enabled:
            lanes.append(self._lane(by_model(cells), 1))
        self._reporter.scheduled(lanes)
        # Threads, since each only waits for a child of its own; the child is what runs in parallel.
        pool = Parallel(n_jobs=min(workers, len(units)), backend="threading", return_as="generator_unordered")
        try:
            for name, seconds in pool(delayed(self._work)(unit) for unit in units):
                self._seconds[name] = seconds
        finally:
            with self._idle:  # after Ctrl-C joblib does not wait for its threads, which may be writing a record
                self._idle.wait_for(lambda: self._working == 0, timeout=_ENDING_LIMIT_S)

    def _on_cluster(self) -> None:
        from batch_export.runner.dask_engine import DaskEngine  # lazy: an optional dependency

        watch = self._reporter.working
        with DaskEngine(self._site, self._preload, self._spec.runner.address, watch) as engine:
            running = [cell for cell in self._cells if not cell.skip]
            if running:
                engine.greet(by_model(running))
            self._hosts = engine.hosts
            todo = self._from_cache()
            units = self._units(todo, engine.workers)
            started = self._reporter.group_started
            lanes = [self._lane(units, engine.workers)]
            if self._spec.measure.enabled:
                lanes.append(self._lane(by_model(todo), len(engine.hosts)))
            self._reporter.scheduled(lanes)
            self._follow(engine.run(units, self._settle, started, exclusive=False))
            waiting = [cell for cell in self._cells if cell.cell in self._to_measure]
            if waiting:
                self._reporter.message(f"measuring {counted(len(waiting), 'cell')}, one at a time on each host")
            self._reporter.scheduled([self._lane(by_model(waiting), len(engine.hosts))])
            self._follow(engine.run(by_model(waiting), self._settle_measured, started, exclusive=True))

    def _follow(self, done: Iterator[tuple[str, float]]) -> None:
        for name, seconds in done:
            self._seconds[name] = seconds
            self._reporter.group_finished(name)

    def _work(self, unit: Unit) -> tuple[str, float]:
        began = time.monotonic()
        with self._idle:
            self._working += 1
        try:
            if not self._site.stop.is_set():
                self._reporter.group_started(unit.name)
                try:
                    UnitRunner(self._site, unit, self._settle, exclusive=False, watch=self._reporter.working).run()
                finally:
                    self._reporter.group_finished(unit.name)
        except BaseException:
            self._site.stop.set()  # the other threads notice at once, not when joblib comes to them
            raise
        finally:
            with self._idle:
                self._working -= 1
                self._idle.notify_all()
        return unit.name, round(time.monotonic() - began, 3)

    def _one_by_one(self) -> None:
        waiting = [cell for cell in self._cells if cell.cell in self._to_measure]
        if waiting:
            self._reporter.message(f"measuring {counted(len(waiting), 'cell')}, one at a time")
        units = by_model(waiting)
        self._reporter.scheduled([self._lane(units, 1)])
        for unit in units:
            began = time.monotonic()
            self._reporter.group_started(unit.name)
            UnitRunner(self._site, unit, self._settle_measured, exclusive=True, watch=self._reporter.working).run()
            self._reporter.group_finished(unit.name)
            if self._site.stop.is_set():
                return
            self._seconds[unit.name] = round(time.monotonic() - began, 3)

    def _lane(self, units: Sequence[Unit], workers: int) -> Lane:
        seconds = self._site.store.durations()
        return Lane(tuple((unit.name, seconds.get(unit.name)) for unit in units), workers)

    def _settle(self, cell: PlannedCell, results: View, log: str, failure: Failure | None) -> bool:
        """Settles a cell of the parallel part: with its record, or for the exclusive lane."""
        chain = self._resolve(cell, results)
        if chain.pending is not None and failure is None:
            if chain.pending.action.mnemonic not in steps.ALONE:
                return False
            with self._lock:
                self._to_measure[cell.cell] = cell
                self._logs[cell.cell] = log if _ran(chain, results) else ""
            self._reporter.verified(cell.cell)
            return True
        self._finish(cell, chain, results, log, failure)
        return True

    def _settle_measured(self, cell: PlannedCell, results: View, log: str, failure: Failure | None) -> bool:
        """Settles a cell of the exclusive lane."""
        chain = self._resolve(cell, results)
        if chain.pending is not None and failure is None:
            return False
        own = self._logs.get(cell.cell, "")
        self._finish(cell, chain, results, log if failure or not own else own, failure)
        return True

    def _follow_cell(self, cell: PlannedCell, get: plan.Get) -> plan.Chain:
        return plan.resolve(cell, self._site.toolchain, self._site.settings, get)

    def _resolve(self, cell: PlannedCell, results: View) -> plan.Chain:
        toolchain = self._site.toolchain
        if results.host is not None:
            toolchain = replace(toolchain, host=results.host)
        return plan.resolve(cell, toolchain, self._site.settings, results.look_up)

    def _finish(self, cell: PlannedCell, chain: plan.Chain, results: View, log: str, failure: Failure | None) -> None:
        if not (self._site.logs / Path(log).name).is_file() or not (failure or _ran(chain, results)):
            log = ""  # all that failed was known before a child had to be started for this unit
        try:
            record = assemble(cell, chain, results, self._site.store, log, failure)
        except msgspec.ValidationError as error:
            problem = Failure("environment", "InvalidFacts", f"a stage's facts are not what a record holds: {error}")
            record = Record(cell.cell, "fail", failure=problem, log=log)
        self._write(judge(record, cell.model, self._spec.tolerances, self._spec.expectations))

    def _write(self, record: Record) -> None:
        with self._lock:
            self._places[record.cell] = self._file.write(record)
        self._reporter.record(record)


def _ran(chain: plan.Chain, results: View) -> bool:
    """Whether any of a cell's actions was executed in this run."""
    return any(results.origin(action.key) == "ran" for action, _ in chain.steps)


def _is_to_be_made_again(record: Record) -> bool:
    return record.verdict == "missing" or (record.failure is not None and record.failure.stage == "environment")
