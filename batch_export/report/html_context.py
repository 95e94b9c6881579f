"""What the HTML report shows beside the records: models, what Check read, history, commit, what `bisect` found.

A run's folder, records and summary arrive, a `ReportContext` leaves. Nothing is run; what is missing (a store that was
cleaned, a history that is locked) makes a report poorer, never fails it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from batch_export.errors import BatchExportError
from batch_export.record import Cell, Record
from batch_export.report import run_folder as files
from batch_export.report.compare import Comparison
from batch_export.report.disagreements import sentences
from batch_export.report.history import HISTORY_FILE, Entry, open_history
from batch_export.report.html_data import Bisected, ReportContext
from batch_export.report.redact import shorten
from batch_export.report.rerun import settings
from batch_export.report.rows import rows_of
from batch_export.report.summary import Summary
from batch_export.report.terminal import folder_text
from batch_export.runner.config_folders import folder_flags
from batch_export.runner.surroundings import circumstances
from batch_export.spec import RunSpec
from batch_export.stages.follow_up_request import Answer
from batch_export.store.entry import read_entry


def context_of(
    folder: Path,
    records: Sequence[Record],
    summary: Summary,
    comparison: Comparison | None = None,
    place: Path | None = None,
) -> ReportContext:
    """Gathers what the HTML report shows beside the records; `place` is the folder that it is written to."""
    place = place or folder
    spec = files.read_run(folder).spec
    made = circumstances(folder)
    lines = [("started", made.started), ("commit", made.commit)]
    lines += [(name, made.toolchain.host.get(name, "")) for name in ("name", "cpu", "cores", "system")]
    lines += list(made.toolchain.versions.items())
    start = Path(made.folder or Path.cwd())  # relative paths are meant from where the run was started
    store = start / Path(spec.store_path).expanduser()
    return ReportContext(
        models={model.name: model for model in spec.matrix.models},
        realised=_Realised(store),
        history=_history(folder.parent.parent),
        comparison=comparison,
        provenance=[(name, value) for name, value in lines if value],
        artifacts=_link(store, place) if store.is_dir() else "",
        logs=_link(folder, place),
        tolerances={name: (entry.atol, entry.rtol) for name, entry in spec.tolerances.items()},
        stale=(*summary.stale_expectations, *(f"exclusion: {line}" for line in summary.stale_exclusions)),
        disagreements=sentences(summary.disagreements),
        repro=_repro(spec, summary.command),
        run=_from(start, folder),
        bisected=_bisected(folder, rows_of(records)),
    )


def _from(start: Path, folder: Path) -> str:
    """The run's folder as commands name it that are typed where the run was started."""
    path = folder.absolute()
    return str(path.relative_to(start)) if path.is_relative_to(start) else folder_text(folder)


def _link(target: Path, place: Path) -> str:
    """Returns the way from a report's folder to another; empty where it leads through the names of a home folder."""
    way = os.path.relpath(target, place)
    return way if shorten(way) == way else ""


class _Realised(Mapping[str, Mapping[str, Any]]):
    """What Check read in a file, by the action's key, as far as the store still has it; read when it is asked for."""

    def __init__(self, store: Path) -> None:
        self._actions = store / "actions"

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        entry = read_entry(self._actions / key[:2] / f"{key}.json") if key.isalnum() else None
        if entry is None:
            raise KeyError(key)
        return entry.result.facts

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in self._actions.glob("*/*.json"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _bisected(folder: Path, records: Sequence[Record]) -> dict[Cell, Bisected]:
    """What the verb `bisect` left beside the run."""
    found: dict[Cell, Bisected] = {}
    for record in records if (folder / "bisect").is_dir() else ():
        try:
            answer = msgspec.json.decode(files.bisect_file(folder, record.cell).read_bytes(), type=Answer)
        except (OSError, msgspec.MsgspecError):
            continue
        found[record.cell] = bisected(answer)
    return found


def bisected(answer: Answer) -> Bisected:
    """Takes from an answer what the report shows; answers about numbers and about the export have other facts."""

    def fact(*names: str) -> str:
        return next((str(value) for name in names if (value := answer.facts.get(name))), "")

    return Bisected(
        text=answer.text,
        node=fact("onnx_node", "node"),
        operator=fact("onnx_operator", "operator"),
        source=fact("source"),
        module=fact("module"),
        blame=": ".join(filter(None, (fact("blame"), fact("reason")))),
    )


def _history(outputs: Path) -> Mapping[str, Sequence[Entry]]:
    try:
        with open_history(outputs / HISTORY_FILE, create=False, wait_s=1.0) as history:
            return history.recent()
    except BatchExportError:
        return {}


def _repro(spec: RunSpec, command: str) -> str:
    """The command line that a cell's axes are added to: the run's, without its own matrix and baseline."""
    return shlex.join(["python", "-m", "batch_export", *settings(spec), *folder_flags(command)])
