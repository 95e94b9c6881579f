"""One unit of work from start to end: as many children as it takes until every cell of it is settled.

Units arrive; results go into the run's memory, and settled cells to whoever asked. A child that dies takes with it the
cells of the action that it was executing, once that action has been tried as often as the run allows; the others go on
in a fresh child.
"""

from __future__ import annotations

from dataclasses import replace

from batch_export.action import ActionResult
from batch_export.digest import Digest
from batch_export.errors import StoreError
from batch_export.plan.matrix import PlannedCell
from batch_export.record import RETRIED_STAGES, Cell, Failure
from batch_export.runner.order import CellDone, CellStarted, Event, Finished, Order, Started, Warned
from batch_export.runner.results import View
from batch_export.runner.site import Settle, Site, Watch, ignore
from batch_export.runner.supervisor import End, Limits, Supervision, blame, blamed_result, limits_for
from batch_export.runner.units import Unit


class UnitRunner:
    """Works through one unit.

    Args:
        site: the run's.
        unit: the unit; its cells are of one model.
        settle: told of each cell that may be done.
        exclusive: whether the children execute what needs the machine for itself.
        watch: told of each cell and action that a child turns to.
    """

    def __init__(self, site: Site, unit: Unit, settle: Settle, *, exclusive: bool, watch: Watch = ignore) -> None:
        self._site = site
        self._unit = unit
        self._settle = settle
        self._exclusive = exclusive
        self._watch = watch
        self._limits: Limits = limits_for(unit.cells[0].model, site.runner)
        self._log = site.logs / unit.log_name
        self._log_name = f"{site.logs.name}/{unit.log_name}"
        self._results = site.results.view()
        self._sent: list[PlannedCell] = []
        self._done: set[Cell] = set()
        self._current = 0
        self._trying_again = False
        self._heard: set[Digest] = set()

    @property
    def results(self) -> View:
        """What the unit's children reported, and what the run knows besides."""
        return self._results

    def run(self) -> None:
        """Starts children until every cell is settled, or the run is stopped."""
        todo = self._open(list(self._unit.cells))
        while todo and not self._site.stop.is_set():
            self._trying_again, before = False, len(self._heard)
            try:
                end = self._child(todo)
            except StoreError as error:
                self._fail(todo, Failure("environment", type(error).__name__, str(error)))
                return
            if end.reason == "stopped":
                return
            result = blamed_result(end, self._limits, self._log)
            if result is not None and not self._tries_again(result):
                self._results.put(replace(result, attempts=self._results.tries(result.key)), "ran")
            left = self._open(todo)
            goes_on = self._trying_again or (end.spoiled and len(self._heard) > before)
            if left and end.reason == "done" and not goes_on:
                self._fail(left, Failure("environment", "Unsettled", "the child ended without a result for this cell"))
                return
            if left and result is None and end.reason != "done" and len(left) == len(todo):
                left = self._blame_cell(self._sent[self._current], blame(end, self._limits, self._log), left)
            todo = left

    def _blame_cell(self, culprit: PlannedCell, failure: Failure, left: list[PlannedCell]) -> list[PlannedCell]:
        """Fails the cell at which a child died between two actions, unless it may be tried again."""
        before = self._results.attempts.get(culprit.cell, ())
        if len(before) < self._site.runner.retries:
            self._results.attempts[culprit.cell] = (*before, failure)
            return left
        self._fail([culprit], failure)
        return [cell for cell in left if cell is not culprit]

    def _tries_again(self, result: ActionResult) -> bool:
        """Keeps a failure as that of an earlier try, if the action may be tried again."""
        failure = result.failure
        if failure is None or failure.stage not in RETRIED_STAGES:
            return False
        if not self._site.results.try_again(result, self._site.runner.retries):
            return False
        self._trying_again = True
        return True

    def _open(self, cells: list[PlannedCell]) -> list[PlannedCell]:
        """Returns the cells for which something is left to do."""
        return [cell for cell in cells if not self._is_settled(cell)]

    def _is_settled(self, cell: PlannedCell) -> bool:
        if cell.cell not in self._done and self._settle(cell, self._results, self._log_name, None):
            self._done.add(cell.cell)
        return cell.cell in self._done

    def _fail(self, cells: list[PlannedCell], failure: Failure) -> None:
        for cell in cells:
            self._settle(cell, self._results, self._log_name, failure)

    def _child(self, cells: list[PlannedCell]) -> End:
        site = self._site
        self._sent, self._current = cells, 0
        scratch = site.store.scratch()
        try:
            order = Order(
                name=self._unit.name,
                cells=tuple(cells),
                toolchain=site.toolchain,
                settings=site.settings,
                store=str(site.store.root),
                scratch=str(scratch),
                log=str(self._log),
                limit_s=self._limits.seconds,
                exclusive=self._exclusive,
                stages=dict(site.stages),
                run=site.store.run,
                store_settings=site.store.usable_settings(),
                attempts=site.results.tries(),
                failed=self._results.failed_beside(),
                layer=site.toolchain.folder_of(cells[0].environment),
            )
            child = site.launcher.launch(order)
            end = Supervision(child, self._limits, self._log, self._on_event, site.stop).run()
            if end.reason == "died" and end.running is None and not scratch.is_dir():
                raise StoreError(f"{scratch} was removed while it was in use. Next step: run `batch-export resume`")
            return end
        finally:
            site.store.discard(scratch)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Started | Finished | CellStarted):
            index = event.index if isinstance(event, CellStarted) else self._current
            mnemonic = event.mnemonic if isinstance(event, Started) else ""
            self._watch(self._unit.name, self._sent[index].cell, mnemonic)
        if isinstance(event, Finished):
            self._heard.add(event.result.key)
            if event.origin == "cached" or not self._tries_again(event.result):
                self._results.put(event.result, event.origin)
        elif isinstance(event, CellStarted):
            self._current = event.index
        elif isinstance(event, CellDone):
            self._is_settled(self._sent[event.index])
        elif isinstance(event, Warned):
            remote = self._site.store.remote
            if not event.remote_failed or remote is None or remote.stop():
                self._site.warn(event.text)
