"""The last run again, or one that is named: only the cells that failed.

The words of a command line without its own flags, and the run, arrive; what is left for Hydra, and which cells, leave.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batch_export.cli.known import BRIEF, is_last_failed
from batch_export.cli.origin import enter
from batch_export.errors import UsageError
from batch_export.nouns import counted
from batch_export.record import Cell, Record
from batch_export.report import run_folder as files
from batch_export.report.runs import all_runs, records_of, resolve_run
from batch_export.report.terminal import folder_text
from batch_export.report.wording import UNEXPECTED


@dataclass(frozen=True, slots=True)
class Again:
    """What is run again.

    Attributes:
        words: overrides and Hydra's flags.
        cells: those that failed.
        sentence: what is said where none did, and nothing is run; empty otherwise.
        exit_code: what is returned with it.
    """

    words: tuple[str, ...]
    cells: frozenset[Cell]
    sentence: str = ""
    exit_code: int = 0


def run_again(run: str, words: tuple[str, ...]) -> Again:
    """What is left to do of a run.

    Args:
        run: a folder, `latest~1`, or these in another folder of runs; the last one when empty.
        words: overrides and Hydra's flags; when empty, the run's own.

    Raises:
        UsageError: there is no such run.
    """
    folder = resolve_run(run, _outputs(words)) if run else _last(_outputs(words))
    records = records_of(folder)
    failed = frozenset(record.cell for record in records if record.verdict in UNEXPECTED)
    if not failed:
        return Again(words, failed, *_without_failure(folder, records))
    if run or not words:
        enter(folder)
    return Again(words or _repeated(files.read_run(folder).command), failed)


def _without_failure(folder: Path, records: Sequence[Record]) -> tuple[str, int]:
    """What is said of a run without a failure, and the exit code: it proves nothing where nothing was tested."""
    where, summary = folder_text(folder), files.read_summary(folder)
    if all(record.verdict == "skip" for record in records):
        cells = f"all {counted(len(records), 'cell')} skipped" if records else "there is no cell"
        return f"nothing was tested in {where} ({cells}); nothing is run. Next step: run it without --last-failed", 1
    if summary is None or summary.get("interrupted") or summary.get("missing"):
        step = f"`python -m batch_export resume {where}`"
        return f"nothing failed in {where} so far, which is not finished; nothing is run. Next step: {step}", 1
    return f"nothing failed in {where}; nothing is run", 0


def _last(outputs: Path) -> Path:
    runs = all_runs(outputs)
    if not runs:
        raise UsageError(
            f"--last-failed: {outputs} holds no run. Next step: run a sweep without it first, or name the run: "
            "--last-failed=/path/to/outputs/latest"
        )
    return runs[-1].resolve()


def _outputs(words: Sequence[str]) -> Path:
    named = [word.partition("=")[2].strip("'\"") for word in words if word.startswith("output.path=")]
    return Path(named[-1] if named else "outputs").expanduser()


def _repeated(command: str) -> tuple[str, ...]:
    """The words of a run's command line behind the program's name."""
    words = shlex.split(command)
    typed = words[words.index("batch_export") + 1 :] if "batch_export" in words else words[1:]
    return tuple(word for word in typed if word not in BRIEF and not is_last_failed(word))
