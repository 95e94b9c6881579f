"""Which cells of a run have their records, and how the others get theirs from the results that are known.

Planned cells and results arrive; judged records go to `records.jsonl` and to the reporter. A cell is settled when it
has its record, or lacks only what needs the machine for itself. Nothing is executed here and no child is started.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from batch_export import steps
from batch_export.judge.verdict import judge
from batch_export.plan import walk as plan
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Cell, Failure, Record
from batch_export.runner.assemble import assemble, skipped
from batch_export.runner.kept_records import told_of_outdated
from batch_export.runner.prefetch import prefetch
from batch_export.runner.records_file import LOGS_NAME, RecordsFile
from batch_export.runner.reporter import Reporter
from batch_export.runner.results import View
from batch_export.runner.site import Site
from batch_export.runner.stored_records import Place, StoredRecords
from batch_export.runner.units import group
from batch_export.spec import RunSpec


class Settling:
    """The records of one run as they come. Its methods may be called from several threads at once.

    Args:
        spec: what was asked for.
        cells: the expanded matrix.
        site: the run's.
        records: takes the records.
        reporter: told of each record.
    """

    def __init__(
        self, spec: RunSpec, cells: Sequence[PlannedCell], site: Site, records: RecordsFile, reporter: Reporter
    ) -> None:
        self._spec = spec
        self._cells = cells
        self._site = site
        self._file = records
        self._reporter = reporter
        self._lock = threading.Lock()
        self._places: dict[Cell, Place] = {}
        self._to_measure: set[Cell] = set()
        self._logs: dict[Cell, str] = {}

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
            if told := told_of_outdated(self.records(), self._site.store):
                self._reporter.message(told)

    def records(self) -> StoredRecords:
        """Returns the records so far, in the order of the planned cells, as they lie in the run's folder."""
        return self._file.at([self._places[cell.cell] for cell in self._cells if cell.cell in self._places])

    def to_measure(self) -> list[PlannedCell]:
        """Returns the cells that lack only what needs the machine for itself, in the order of the planned cells."""
        return [cell for cell in self._cells if cell.cell in self._to_measure]

    def from_store(
        self,
        split: Sequence[str] | None,
        hosts: Sequence[dict[str, str]] = (),
        missing: Callable[[], None] = lambda: None,
    ) -> list[PlannedCell]:
        """Settles the cells whose results are all known, and returns the others.

        Args:
            split: capture groups that were split by opset when the run began, see `Surroundings.split`.
            hosts: where cells may have been measured; none: here.
            missing: called when the first cell turns out to need a child.
        """
        todo: list[PlannedCell] = []
        before = [] if split is None else group([cell for cell in self._cells if not cell.skip], 0, split=split)
        logs = {cell.cell: f"{LOGS_NAME}/{unit.log_name}" for unit in before for cell in unit.cells}
        cached = [self._site.results.view(host) for host in hosts] or [self._site.results.view()]
        if self._site.store.remote is not None:
            left = [cell for cell in self._cells if not cell.skip and cell.cell not in self._places]
            prefetch(left, self._site.results, self._follow_cell)
        for cell in self._cells:
            if cell.cell in self._places:
                continue
            if cell.skip:
                self._write(skipped(cell, cell.skip))
            elif not self.settle(cell, self._most_complete(cell, cached), logs.get(cell.cell, ""), None):
                if not todo:
                    missing()
                todo.append(cell)
        return todo

    def settle(self, cell: PlannedCell, results: View, log: str, failure: Failure | None) -> bool:
        """Settles a cell of the parallel part: with its record, or for the exclusive lane."""
        chain = self._resolve(cell, results)
        if chain.pending is not None and failure is None:
            if chain.pending.action.mnemonic not in steps.ALONE:
                return False
            with self._lock:
                self._to_measure.add(cell.cell)
                self._logs[cell.cell] = log if _ran(chain, results) else ""
            self._reporter.verified(cell.cell)
            return True
        self._finish(cell, chain, results, log, failure)
        return True

    def settle_measured(self, cell: PlannedCell, results: View, log: str, failure: Failure | None) -> bool:
        """Settles a cell of the exclusive lane."""
        chain = self._resolve(cell, results)
        if chain.pending is not None and failure is None:
            return False
        own = self._logs.get(cell.cell, "")
        self._finish(cell, chain, results, log if failure or not own else own, failure)
        return True

    def _most_complete(self, cell: PlannedCell, views: Sequence[View]) -> View:
        """Returns the view of the host on which the cell was measured already, or the first."""
        if len(views) == 1:
            return views[0]
        return next((view for view in views if self._resolve(cell, view).pending is None), views[0])

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
