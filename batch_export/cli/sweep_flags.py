"""Flags of a sweep that are not Hydra's: `-q` prints only what is not as expected, `--last-failed[=RUN]` runs it again.

The words of a command line without a verb arrive; what is left for Hydra, and what the flags mean, leaves.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batch_export.cli.known import BRIEF, LAST_FAILED, is_last_failed
from batch_export.cli.origin import enter
from batch_export.errors import UsageError
from batch_export.nouns import counted
from batch_export.record import Cell, Record
from batch_export.report import run_folder as files
from batch_export.report.runs import all_runs, records_of, resolve_run
from batch_export.report.terminal import folder_text
from batch_export.report.wording import UNEXPECTED


@dataclass(frozen=True, slots=True)
class SweepFlags:
    """What was asked for beside the configuration.

    Attributes:
        words: overrides and Hydra's flags.
        brief: only what is not as expected is told.
        only: the cells to run; all when None.
        nothing_to_do: the sentence about a last run without a failure; empty otherwise.
        exit_code: what is returned with it.
    """

    words: tuple[str, ...]
    brief: bool = False
    only: frozenset[Cell] | None = None
    nothing_to_do: str = ""
    exit_code: int = 0

    @property
    def typed(self) -> tuple[str, ...]:
        """The words as a command line that does the same."""
        return self.words if self.only is None else (*self.words, LAST_FAILED[0])


def taken_out(arguments: Sequence[str]) -> SweepFlags:
    """Parts the flags of a sweep from the rest.

    With `--last-failed` and nothing else the last run's own command line is taken up again, in the folder that it was
    started in. `--last-failed=RUN` names the run: a folder, `latest~1`, or these in another folder of runs.

    Raises:
        UsageError: there is no last run, or no such one.
    """
    words = tuple(word for word in arguments if word not in BRIEF and not is_last_failed(word))
    brief = any(word in BRIEF for word in arguments)
    asked = [word.partition("=")[2] for word in arguments if is_last_failed(word)]
    if not asked:
        return SweepFlags(words, brief)
    folder = resolve_run(asked[-1], _outputs(words)) if asked[-1] else _last(_outputs(words))
    records = records_of(folder)
    failed = frozenset(record.cell for record in records if record.verdict in UNEXPECTED)
    if not failed:
        return SweepFlags(words, brief, failed, *_without_failure(folder, records))
    if asked[-1] or not words:
        enter(folder)
    return SweepFlags(words or _repeated(files.read_run(folder).command), brief, failed)


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
