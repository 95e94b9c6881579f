"""The parent's side of `bisect CELL` and `repro CELL`: finds the cell in a run, and asks a child.

A cell's name and a run's folder arrive; the child's answer leaves. torch is never imported here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from batch_export.environments.making import environment_for
from batch_export.errors import ArtifactError, RunError, UsageError
from batch_export.judge.verdict import failing_run, judge
from batch_export.plan.matrix import PlannedCell
from batch_export.record import Record
from batch_export.runner.launcher import log_tail
from batch_export.runner.stored_models import stored_model
from batch_export.runner.supervisor import limits_for
from batch_export.sources.closure import local_roots
from batch_export.sources.pythons_variables import HASHING, value
from batch_export.sources.search_path import path_of_children
from batch_export.spec import RunSpec
from batch_export.stages.follow_up_request import Answer, Question, Request, refusal_file
from batch_export.store import open_store
from batch_export.words import did_you_mean, nearest

REPRO_FOLDER = "repro"
_ROOM = "batch_export.stages.follow_up"


def ask(
    question: Question,
    name: str,
    run_folder: Path,
    spec: RunSpec,
    cells: Sequence[PlannedCell],
    records: Sequence[Record],
    *,
    for_runtime: str = "",
    tell: Callable[[str], None] = lambda text: None,
) -> Answer:
    """Asks where a cell of a run goes wrong, or for the smallest thing that fails as it does.

    Args:
        question: which of the two.
        name: the cell, as the run names it: `model/dynamic/opset20/provider/exporter`.
        run_folder: the run's; a repro goes below it.
        spec: what the run was asked to do.
        cells: the planned cells.
        records: their records.
        for_runtime: a provider, or the kind of its runtime: the repro is for that runtime's developers, about the
            cell of the run that has the same file there.
        tell: told of a stored file that is damaged; the child then makes it again.

    Raises:
        UsageError: the run has no such cell, or the cell did not fail.
        RunError: the child died.
    """
    planned = _cell(name, cells, run_folder)
    if for_runtime:
        planned = _in_runtime(planned, for_runtime, cells)
        name = planned.cell.name
    record = next((one for one in records if one.cell == planned.cell), None)
    if record is None or record.verdict in ("skip", "missing"):
        why = planned.skip or (record.message if record is not None else "it has no record")
        raise UsageError(f"{name} was not run ({why}), so there is nothing to {question}")
    record = judge(record, planned.model, spec.tolerances, ())
    if record.verdict == "pass":
        raise UsageError(f"{name} passes in {run_folder}; there is nothing to {question}")
    if record.error_class == UsageError.__name__:
        raise UsageError(
            f"{name} fails at what its exporter is called with, so there is nothing to {question}: {record.message}"
        )
    if record.error_class == "NothingFinite":
        raise UsageError(
            f"{name} does what eager does, without one finite value, so there is nothing to {question}. "
            "Next step: look for the NaN or infinity in the model itself"
        )
    run, limits = failing_run(record, planned.model, spec.tolerances), limits_for(planned.model, spec.runner)
    example = {axis.name: axis.example for axis in planned.model.axes}
    request = Request(
        question=question,
        planned=planned,
        record=record,
        sizes=run.sizes if run is not None else example,
        variant=run.variant if run is not None else "",
        onnx=_file_of(record, spec, tell),
        folder=str(
            (run_folder / REPRO_FOLDER / f"{name.replace('/', '_')}{'_for_runtime' * bool(for_runtime)}").absolute()
        ),
        tolerances={**spec.tolerances, **planned.model.tolerances},
        timeout_s=min(limits.seconds, 120.0),
        memory_bytes=limits.memory_bytes,
        for_runtime=bool(for_runtime),
    )
    return _in_child(request)


def _file_of(record: Record, spec: RunSpec, tell: Callable[[str], None]) -> str:
    """The cell's file in the run's store; empty where there is none that is sound."""
    place = Path(spec.store_path).expanduser()
    if record.onnx is None or not place.is_dir():
        return ""
    try:
        return str(stored_model(record, open_store(place, settings=replace(spec.store, remote=""))))
    except LookupError:
        return ""
    except ArtifactError as error:
        tell(str(error))
        return ""


def _cell(name: str, cells: Sequence[PlannedCell], run_folder: Path) -> PlannedCell:
    found = next((planned for planned in cells if planned.cell.name == name), None)
    if found is not None:
        return found
    near = nearest(name, [planned.cell.name for planned in cells])
    hint = f"did you mean {', '.join(near)}?" if near else "`report` lists its cells"
    raise UsageError(f"The run {run_folder} has no cell {name!r} ({hint})")


def _in_runtime(planned: PlannedCell, wanted: str, cells: Sequence[PlannedCell]) -> PlannedCell:
    """Returns the cell that has the same file in another runtime, or this one if it is the one."""
    beside = [other for other in cells if other.cell.file == planned.cell.file]
    found = next((other for other in beside if wanted == other.provider.name), None)
    if found is None and wanted == planned.provider.kind:
        found = planned
    if found is None:
        found = next((other for other in beside if wanted == other.provider.kind), None)
    if found is None:
        known = list(dict.fromkeys(name for other in beside for name in (other.provider.name, other.provider.kind)))
        raise UsageError(
            f"The run has no cell of {planned.cell.file} in {wanted!r}; it has {', '.join(known)}"
            f"{did_you_mean(wanted, known)}"
        )
    return found


def _python(planned: PlannedCell) -> str:
    """The interpreter of the environment that a cell runs in."""
    if not planned.environment:
        return sys.executable
    return str(environment_for(planned.environment, layered=True).program)


def _in_child(request: Request) -> Answer:
    path = path_of_children([*map(str, local_roots())])
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    settings[HASHING] = value(HASHING, os.environ)  # as in the children of a run
    with tempfile.TemporaryDirectory(prefix="batch_export_") as folder:
        asked, answered, log = (Path(folder) / name for name in ("request.msgpack", "answer.json", "child.log"))
        asked.write_bytes(msgspec.msgpack.encode(request))
        with log.open("wb") as stream:
            done = subprocess.run(
                [_python(request.planned), "-m", _ROOM, str(asked), str(answered)],
                env={**os.environ, **settings, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                check=False,
            )
        if refusal_file(answered).is_file():
            why = refusal_file(answered).read_text(encoding="utf-8")
            raise RunError(f"{request.planned.cell.name} cannot be looked at again: {why}")
        if done.returncode or not answered.is_file():
            raise RunError(
                f"{request.question} of {request.planned.cell.name} ended with exit code {done.returncode}. "
                f"Its last lines:\n{log_tail(log)}"
            )
        return msgspec.json.decode(answered.read_bytes(), type=Answer)
