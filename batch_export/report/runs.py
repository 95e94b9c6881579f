"""Which run is meant: a folder, `latest`, `latest~2`, or a baseline file. Words in, records out; nothing is run.

Records are judged again with their run's own tolerances and expectations, so that an old run says what `report` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from batch_export.errors import UsageError
from batch_export.judge.verdict import judge
from batch_export.record import Record
from batch_export.report import run_folder
from batch_export.report.baseline import read_baseline
from batch_export.report.compare import for_comparison
from batch_export.report.summary import complete

_LATEST = re.compile(r"latest(?:~(\d+))?")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: as it was asked for.
        folder: the run's folder; None for a baseline file.
    """

    name: str
    records: tuple[Record, ...]
    folder: Path | None = None
    store: Path | None = None

    @property
    def accepted(self) -> bool:
        """Whether somebody accepted this as a baseline."""
        return self.folder is None


def resolve_run(word: str, outputs: Path) -> Path:
    """The folder that `word` means.

    Raises:
        UsageError: there is no such run; the sentence lists the newest ones.
    """
    parent, _, last = word.replace("\\", "/").rpartition("/")
    if parent and _LATEST.fullmatch(last) and not (Path(word).expanduser() / run_folder.RUN_FILE).is_file():
        word, outputs = last, Path(parent).expanduser()  # a folder of runs elsewhere
    found = _LATEST.fullmatch(word)
    if found is None:
        folder = Path(word).expanduser()
        if (folder / run_folder.RUN_FILE).is_file():
            return folder.resolve()
        inside = outputs / word
        if (inside / run_folder.RUN_FILE).is_file():
            return inside.resolve()
        raise UsageError(f"{word!r} is not the folder of a run{_hint(outputs)}")
    steps = int(found.group(1) or 0)
    runs = all_runs(outputs)
    if steps >= len(runs):
        raise UsageError(
            f"There is no run {word!r}: {outputs} holds {len(runs)} run{'s' * (len(runs) != 1)}{_hint(outputs)}"
        )
    return runs[len(runs) - 1 - steps].resolve()


def all_runs(outputs: Path) -> list[Path]:
    """The folders of runs below `outputs`, oldest first (their names are dates and times)."""
    return sorted(
        path.parent for path in outputs.glob(f"*/*/{run_folder.RUN_FILE}") if path.parent.parent.name != "latest"
    )


def read_side(word: str, outputs: Path) -> Side:
    """Reads one side of a comparison.

    Raises:
        UsageError: it is neither a run nor a baseline, or of a newer version.
    """
    path = Path(word).expanduser()
    if path.is_file():
        return Side(word, read_baseline(path))
    if path.suffix == ".json":
        raise UsageError(
            f"The baseline {word} does not exist. Next step: make it with `baseline accept latest --to {word}`"
        )
    folder = resolve_run(word, outputs)
    return Side(
        word, records_of(folder, take=for_comparison), folder, Path(run_folder.read_run(folder).spec.store_path)
    )


def records_of(folder: Path, *, take: Callable[[Record], Record] | None = None) -> tuple[Record, ...]:
    """The completed, newly judged records of a run.

    Args:
        folder: the run's.
        take: what is kept of each record; by default all of it.

    Raises:
        UsageError: the folder holds no run, or one of a newer version.
    """
    stored = run_folder.read_run(folder)
    models = {model.name: model for model in stored.spec.matrix.models}
    judged = (
        record
        if record.verdict in ("skip", "missing")
        else judge(record, models[record.cell.model], stored.spec.tolerances, stored.spec.expectations)
        for record in run_folder.each_record(folder)
        if record.cell.model in models
    )
    return complete(stored.cells(), map(take, judged) if take is not None else judged)


def require_common(base: Side, new: Side) -> None:
    """Refuses a baseline of another matrix.

    Raises:
        UsageError: the sides have no cell in common.
    """
    if base.records and new.records and not {r.cell for r in base.records} & {r.cell for r in new.records}:
        first, second = base.records[0].cell.name, new.records[0].cell.name
        raise UsageError(
            f"{base.name} and {new.name} are of different matrices: they have no cell in common ({first} is of the "
            f"first, {second} of the second). Next step: compare runs of the same sweep"
        )


def _hint(outputs: Path) -> str:
    newest = [str(path.relative_to(outputs)) for path in all_runs(outputs)[-3:]]
    if not newest:
        return f" ({outputs} holds none). Next step: run a sweep, or name the outputs with --outputs DIR"
    return f" (the newest in {outputs}: {', '.join(newest)}). Next step: name one of these, latest, or latest~1"
