"""Words of a command line for one cell: its matrix, with config folders and settings of a run that had it.

A cell's name as reports print it arrives with what else was typed; words for Hydra leave, and the process goes where
that run was started.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from batch_export.cli.origin import enter, words_of
from batch_export.errors import UsageError
from batch_export.record import Cell
from batch_export.report import run_folder as files
from batch_export.report.runs import all_runs, resolve_run

_MOST_RUNS = 20
"""How many runs are looked through for a cell's."""


def words_for(name: str, overrides: Sequence[str], folders: Sequence[str], run: str | None, outputs: Path) -> list[str]:
    """Returns the words that compose a configuration with this cell alone.

    Args:
        name: the cell's.
        overrides: as typed.
        folders: the config folders that were typed, as words.
        run: the run whose config folders and settings count; None: the newest with the cell.
        outputs: where runs lie.

    Raises:
        UsageError: it is not the name of a cell, or there is no such run.
    """
    try:
        cell = Cell.parse(name)
    except ValueError as error:
        raise UsageError(f"{error}. Next step: write it as reports do, e.g. bert_tiny/full/opset20/cpu/core") from error
    chosen = [
        f"matrix.{key}=[{value if isinstance(value := getattr(cell, axis), int) else _quoted(value)}]"
        for axis, key in Cell.axes().items()
    ]
    given = [*overrides, *folders]
    found = resolve_run(run, outputs) if run else _newest_with(name, outputs)
    if found is not None:
        given = [*words_of(found, list(overrides), folders), *_absolute(given)]
        enter(found)
    return [*given, *chosen]


def _newest_with(name: str, outputs: Path) -> Path | None:
    """The newest run that planned the cell, if one of the last runs did."""
    for folder in all_runs(outputs)[: -_MOST_RUNS - 1 : -1]:
        try:
            if any(planned.cell.name == name for planned in files.read_run(folder).planned):
                return folder.resolve()
        except UsageError:
            continue
    return None


def _absolute(words: Sequence[str]) -> list[str]:
    """The words with the folders after `--config-dir` as they are from here."""
    pairs = pairwise(["", *words])
    return [str(Path(word).absolute()) if flag == "--config-dir" else word for flag, word in pairs]


def _quoted(word: str) -> str:
    if "'" in word or "\\" in word:
        raise UsageError(f"{word!r} is not the name of a configuration")
    return f"'{word}'"
