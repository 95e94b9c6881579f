"""One cell with another release of a package: run in an environment of its own, judged, and kept by the store.

A run's spec with one cell, a package and a release arrive; what came of it leaves. Neither a run's folder nor a line of
history is left: what was executed is in the store, so that the same probe executes nothing the next time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from batch_export.environments.making import EnvironmentUnavailableError, environment_for
from batch_export.environments.request import replaced
from batch_export.errors import UsageError
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Record
from batch_export.report.progress import reporter_for
from batch_export.spec import RunSpec, environment_of
from batch_export.sweeps.planned import cells_of
from batch_export.sweeps.release_search import Tried

_GOOD = ("pass", "xpass", "flaky")
_NO_ANSWER = ("environment",)
"""Stages of failures that say nothing of the package."""


def with_release(spec: RunSpec, package: str, version: str) -> RunSpec:
    """Returns the run with that release of the package in the environment of each of its models."""
    asked = (f"{package}=={version}",)
    models = tuple(replace(model, env=replaced(model.env, asked)) for model in spec.matrix.models)
    return replace(spec, matrix=replace(spec.matrix, models=models), measure=replace(spec.measure, enabled=False))


def probe(spec: RunSpec, name: str, package: str, version: str) -> Tried:
    """Runs the cell of that name with a release of a package.

    A release that an installer refused before is not tried again; the answer says how it is.

    Raises:
        UsageError: the matrix has no such cell.
        EnvironmentUnavailableError: the package index is out of reach, which says nothing of the release.
        KeyboardInterrupt: the run was interrupted.
    """
    from batch_export.runner.sweep import run_sweep  # lazy: joblib takes 0.4 s

    began = time.monotonic()
    probed = with_release(spec, package, version)
    cell = _cell(cells_of(probed), name)
    try:
        if not cell.skip:
            wanted = environment_of(cell.model, cell.exporter)
            environment_for(wanted, layered=True, again=False, tell=lambda sentence: print(sentence, file=sys.stderr))
            cell = _cell(cells_of(probed, start=True), name)
    except EnvironmentUnavailableError as error:
        if error.unreached:
            raise
        return Tried(version, None, "left out", str(error), seconds=time.monotonic() - began)
    if cell.skip:
        return Tried(version, None, "left out", cell.skip, seconds=time.monotonic() - began)
    with tempfile.TemporaryDirectory(prefix="batch_export_") as folder:
        result = run_sweep(
            probed,
            [cell],
            reporter=reporter_for(Console(stderr=True, quiet=True)),
            run_folder=Path(folder),
            command=" ".join(sys.argv),
        )
        if result.interrupted or not result.records:
            raise KeyboardInterrupt
        record = result.records[0]  # they are read from the folder
    ran = result.counts.get("ran", 0) + result.counts.get("rerun_failures", 0)
    return replace(_answer(version, record), ran=ran, seconds=time.monotonic() - began)


def _cell(cells: tuple[PlannedCell, ...], name: str) -> PlannedCell:
    found = next((cell for cell in cells if cell.cell.name == name), None)
    if found is None:
        raise UsageError(f"The matrix has no cell {name!r}; `list cells` prints those that there are")
    return found


def _answer(version: str, record: Record) -> Tried:
    if record.verdict == "skip" or record.stage in _NO_ANSWER:
        return Tried(version, None, "left out", record.message)
    if record.verdict in _GOOD:
        return Tried(version, True, "pass")
    where = " ".join(filter(None, (record.stage, record.error_class)))
    return Tried(version, False, "fail", f"{where}: {record.message}" if where else record.message)
