"""Sends out what a run cannot take from the store: in units of work, to children on this machine or on a cluster's.

Cells arrive, and how long each unit took leaves; results come back to `settling.py`. What needs the machine for itself
goes to one child at a time, after everything else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from batch_export.nouns import counted
from batch_export.plan.matrix import PlannedCell
from batch_export.runner.estimates import estimated
from batch_export.runner.reporter import Lane, Reporter
from batch_export.runner.settling import Settling
from batch_export.runner.site import Site
from batch_export.runner.surroundings import Surroundings, write_surroundings
from batch_export.runner.unit_runner import UnitRunner
from batch_export.runner.units import Unit, by_model, group, in_order, split_groups
from batch_export.spec import RunSpec

_ENDING_LIMIT_S = 10.0
"""How long an interrupted run waits for the threads that end its children."""


class Dispatch:
    """How one run's open cells are executed.

    Args:
        spec: what was asked for.
        site: the run's.
        settling: takes what comes back.
        reporter: told which units are planned and where they are.
        surroundings: the run's; which units were split is written down there.

    Attributes:
        seconds: how long units took, by name.
    """

    def __init__(
        self, spec: RunSpec, site: Site, settling: Settling, reporter: Reporter, surroundings: Surroundings
    ) -> None:
        self._spec = spec
        self._site = site
        self._settling = settling
        self._reporter = reporter
        self._surroundings = surroundings
        self.seconds: dict[str, float] = {}
        self._working = 0
        self._idle = threading.Condition()

    def in_parallel(self, cells: Sequence[PlannedCell]) -> None:
        """Has children of this machine execute what these cells lack, several units at a time."""
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
                self.seconds[name] = seconds
        finally:
            with self._idle:  # after Ctrl-C joblib does not wait for its threads, which may be writing a record
                self._idle.wait_for(lambda: self._working == 0, timeout=_ENDING_LIMIT_S)

    def one_by_one(self) -> None:
        """Has the cells measured that wait for a quiet machine."""
        waiting = self._settling.to_measure()
        if waiting:
            self._reporter.message(f"measuring {counted(len(waiting), 'cell')}, one at a time")
        units = by_model(waiting)
        self._reporter.scheduled([self._lane(units, 1)])
        for unit in units:
            began = time.monotonic()
            self._reporter.group_started(unit.name)
            UnitRunner(
                self._site, unit, self._settling.settle_measured, exclusive=True, watch=self._reporter.working
            ).run()
            self._reporter.group_finished(unit.name)
            if self._site.stop.is_set():
                return
            self.seconds[unit.name] = round(time.monotonic() - began, 3)

    def on_cluster(self, cells: Sequence[PlannedCell], preload: Sequence[str]) -> None:
        """Settles all cells on the workers of a Dask cluster, each of which looks at its own part of the store first.

        Args:
            cells: the expanded matrix.
            preload: what the children there have imported from the start.
        """
        from batch_export.runner.dask_engine import DaskEngine  # lazy: an optional dependency

        watch = self._reporter.working
        with DaskEngine(self._site, preload, self._spec.runner.address, watch) as engine:
            running = [cell for cell in cells if not cell.skip]
            if running:
                engine.greet(by_model(running))
            todo = self._settling.from_store(self._surroundings.split, engine.hosts)
            units = self._units(todo, engine.workers)
            started = self._reporter.group_started
            lanes = [self._lane(units, engine.workers)]
            if self._spec.measure.enabled:
                lanes.append(self._lane(by_model(todo), len(engine.hosts)))
            self._reporter.scheduled(lanes)
            self._follow(engine.run(units, self._settling.settle, started, exclusive=False))
            waiting = self._settling.to_measure()
            if waiting:
                self._reporter.message(f"measuring {counted(len(waiting), 'cell')}, one at a time on each host")
            self._reporter.scheduled([self._lane(by_model(waiting), len(engine.hosts))])
            self._follow(engine.run(by_model(waiting), self._settling.settle_measured, started, exclusive=True))

    def _follow(self, done: Iterator[tuple[str, float]]) -> None:
        for name, seconds in done:
            self.seconds[name] = seconds
            self._reporter.group_finished(name)

    def _work(self, unit: Unit) -> tuple[str, float]:
        began = time.monotonic()
        with self._idle:
            self._working += 1
        try:
            if not self._site.stop.is_set():
                self._reporter.group_started(unit.name)
                try:
                    UnitRunner(
                        self._site, unit, self._settling.settle, exclusive=False, watch=self._reporter.working
                    ).run()
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

    def _run(self, unit: Unit, *, exclusive: bool) -> None:
        settle = self._settling.settle_measured if exclusive else self._settling.settle
        UnitRunner(self._site, unit, settle, exclusive=exclusive, watch=self._reporter.working).run()

    def _units(self, cells: Sequence[PlannedCell], workers: int) -> list[Unit]:
        """Returns the units in the order in which they start; a run that goes on makes them as it did before."""
        seconds = self._site.store.durations()
        units = group(cells, workers, seconds, self._surroundings.split)
        if units and self._surroundings.split is None:
            self._surroundings = replace(self._surroundings, split=split_groups(units))
            write_surroundings(self._site.logs.parent, self._surroundings)
        return in_order(units, estimated(units, seconds))

    def _lane(self, units: Sequence[Unit], workers: int) -> Lane:
        seconds = self._site.store.durations()
        return Lane(tuple((unit.name, seconds.get(unit.name)) for unit in units), workers)
