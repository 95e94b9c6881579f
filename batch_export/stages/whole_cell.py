"""One try at a whole cell, as a run makes it: what a repro's script does where nothing smaller fails in the same way.

`python -m batch_export.stages.whole_cell FOLDER [--verbose]` prints the symptom as JSON, or `BROKEN`. A planned cell
arrives in `case.json`; how it fails leaves, or nothing where it passes. Eager's values, the export, the checks of the
file and its runs are those of a run, without store and cache. Only for a process of its own: what the cell does to its
process, it does to this one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from batch_export import axes
from batch_export.exporter.repro.attempt import answer
from batch_export.exporter.repro.script import READY, Symptom
from batch_export.judge.declared_names import wrongly_named
from batch_export.judge.declared_sizes import wrongly_fixed
from batch_export.judge.needless_draws import needless_draws
from batch_export.judge.verdict import judge
from batch_export.numbers.tolerances import Tolerance
from batch_export.plan.matrix import PlannedCell
from batch_export.plan.walk import requested_contract
from batch_export.record import Failure, Record, RunFacts
from batch_export.spec import CORE_EXPORTER_TARGET
from batch_export.stages import capture, check, plugin, reference, run, translate
from batch_export.stages.failures import failure_from
from batch_export.stages.output import ModelFiles, StageOutput
from batch_export.stages.workbench import Workbench
from batch_export.steps import STEPS

_MNEMONICS = {kind.module: kind.mnemonic for kind in STEPS.values()}


class _EndedError(Exception):
    """A step failed."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def symptom_in(folder: Path, case: Mapping[str, Any], *, verbose: bool = False) -> Symptom | None:
    """Tries the cell of a folder; prints `READY` before each step, which has the case's time limit for itself."""
    sys.path.insert(0, str(folder))
    sys.path.extend(root for root in case.get("roots", ()) if root not in sys.path)
    with contextlib.suppress(OSError):  # arguments may name files from where the run was started
        os.chdir(case["home"])
    planned = msgspec.convert(case["planned"], PlannedCell)
    tolerances = msgspec.convert(case["tolerances"], dict[str, Tolerance])
    if planned.exporter.target != CORE_EXPORTER_TARGET:
        importlib.import_module(planned.exporter.target.rpartition(".")[0])  # one that is not here is no answer
    importlib.import_module(planned.model.target.rpartition(".")[0])
    begin = _beginning(sys.stdout)
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory(prefix="batch_export_") as scratch:
        record = judge(_tried(planned, Path(scratch), begin, verbose), planned.model, tolerances, ())
    if record.verdict == "pass":
        return None
    operator = (record.failure.operator if record.failure is not None else None) or ""
    return {
        "stage": record.stage,
        "error_class": record.error_class,
        "operator": operator,
        "message": record.message,
    }


def _beginning(stream: Any) -> Callable[[], None]:
    def begin() -> None:
        print(READY, file=stream, flush=True)

    return begin


def _tried(planned: PlannedCell, scratch: Path, begin: Callable[[], None], verbose: bool) -> Record:
    """Returns the facts of the cell."""
    record: dict[str, Any] = {}
    try:
        _take_steps(planned, scratch, begin, verbose, record)
    except _EndedError as ended:
        record["failure"] = ended.failure
    return Record(planned.cell, "fail", **record)


def _take_steps(
    planned: PlannedCell, scratch: Path, begin: Callable[[], None], verbose: bool, record: dict[str, Any]
) -> None:
    cell, model = planned.cell, planned.model
    bench = Workbench(cell, model, planned.exporter, scratch)

    def step(execute: Callable[..., StageOutput], *given: Any) -> StageOutput:
        mnemonic = _MNEMONICS[execute.__module__]
        begin()
        try:
            output = execute(*given)
        except (Exception, SystemExit) as error:
            if verbose:
                traceback.print_exception(error)
            raise _EndedError(failure_from(error, mnemonic)) from error
        if output.failure is not None and execute is not run.execute:
            raise _EndedError(output.failure)
        return output

    eager = step(reference.execute, bench)
    requested = requested_contract(model, cell.dynamic, cell.opset, eager.facts)
    if planned.exporter.target == CORE_EXPORTER_TARGET:
        captured = step(capture.execute, bench)
        record["extra"] = {"guards": captured.facts["guards"]}  # a size beyond them has another verdict
        written = step(translate.execute, bench, cell.opset)
    else:
        written = step(plugin.execute, bench, cell.opset)
    if written.model is None:
        raise _EndedError(Failure("translate", "NoModel", f"exporter {cell.exporter!r} wrote no ONNX file"))
    path = _gathered(written.model)
    checked = step(check.execute, path, requested)
    findings = msgspec.convert(checked.facts["findings"], tuple[Failure, ...])
    record["findings"] = findings
    values, cases = eager.files["reference"], axes.case_indices(model, cell.dynamic)
    ran = step(run.execute, path, values, cases, requested, planned.provider, 1)
    runs = msgspec.convert(ran.facts.get("runs", ()), tuple[RunFacts, ...])
    record |= {"failure": ran.failure, "runs": runs}
    guards = record.get("extra", {}).get("guards", ())
    named = wrongly_named(checked.facts, model, cell.dynamic, runs, guards)
    drawn = needless_draws(eager.facts, checked.facts)
    record["findings"] = (*findings, *wrongly_fixed(checked.facts["outputs"], runs), *named, *drawn)


def _gathered(files: ModelFiles) -> Path:
    """Puts external data beside the ONNX file, where a store would have put it."""
    for name, place in files.external.items():
        beside = files.onnx.with_name(name)
        if isinstance(place, Path) and place != beside:
            shutil.copyfile(place, beside)
    return files.onnx


if __name__ == "__main__":
    answer(symptom_in)
    os._exit(0)  # threads that a model left running would keep the process
