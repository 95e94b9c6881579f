"""`explain CELL [--run RUN]`: the keys of a cell's actions and what differs; `explain BE201`: what an error means.

A cell's name as reports print it arrives, or an error's code or class; lines leave. The config folders and settings are
those of the newest run that has the cell, or of the one named; overrides that follow come after them.
Nothing is executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_config_dirs, add_outputs, config_words, offered_cells
from batch_export.cli.origin import enter, words_of
from batch_export.config.compose import Composed, compose_and_call
from batch_export.error_codes import explanation_of, words
from batch_export.errors import UsageError
from batch_export.plan.explain import explain, lines
from batch_export.plan.matrix import PlannedCell
from batch_export.plan.walk import PlanSettings
from batch_export.record import Cell
from batch_export.report import run_folder as files
from batch_export.report.runs import all_runs, resolve_run
from batch_export.sources.toolchain import toolchain_for
from batch_export.store import open_store
from batch_export.sweeps.planned import planned_cells
from batch_export.words import nearest

_MOST_RUNS = 20
"""How many runs are looked through for a cell's."""


def run(arguments: list[str]) -> int:
    """Explains; the exit code is 0 when the cell was found."""
    parser = VerbParser(
        "explain", "Shows the keys of a cell's actions and why they are executed or not, or what an error's code means."
    )
    parser.add_argument("cell", help=f"{Cell.form()}, as reports print it; or a code or class, e.g. BE201")
    parser.add_argument("--full", action="store_true", help="long values whole")
    parser.add_argument("--run", help="the run whose config folders and settings count (default: the newest with it)")
    add_outputs(parser)
    add_config_dirs(parser)
    asked, overrides = parser.parse_known_args(arguments)
    if "/" not in asked.cell:
        return _explain_error(asked.cell)
    try:
        cell = Cell.parse(asked.cell)
    except ValueError as error:
        raise UsageError(f"{error}. Next step: write it as reports do, e.g. bert_tiny/full/opset20/cpu/core") from error
    chosen = [
        f"matrix.{key}=[{value if isinstance(value := getattr(cell, axis), int) else _quoted(value)}]"
        for axis, key in Cell.axes().items()
    ]
    given = [*overrides, *config_words(asked)]
    run = resolve_run(asked.run, asked.outputs) if asked.run else _newest_with(asked.cell, asked.outputs)
    if run is not None:
        given = [*words_of(run, overrides), *_absolute(given)]
        enter(run)
    return compose_and_call(
        lambda composed: _explain(composed, asked.cell, asked.full), [*given, *chosen], leave_no_trace=True
    )


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


def _explain_error(word: str) -> int:
    found = explanation_of(word)
    if found is None:
        near = nearest(word, words(), 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"{word!r} is not a cell's name, nor an error's code or class. Next step: {hint}Write {Cell.form()}, "
            "e.g. bert_tiny/full/opset20/cpu/core, or a code of docs/errors.md"
        )
    print(found.text())
    return 0


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return () if before else offered_cells(before)


def _quoted(word: str) -> str:
    if "'" in word or "\\" in word:
        raise UsageError(f"{word!r} is not the name of a configuration")
    return f"'{word}'"


def _explain(composed: Composed, name: str, full: bool) -> int:

    spec, cells = planned_cells(composed)
    cell = next((item for item in cells if item.cell.name == name), None)
    if cell is None:
        near = nearest(name, tuple(item.cell.name for item in cells), 1)
        raise UsageError(f"The matrix has no cell {name!r}{f'; did you mean {near[0]}?' if near else ''}")
    for sentence in composed.hidden(spec):
        print(sentence)
    if cell.skip:
        print("\n".join(lines(cell, [])))
        return 0
    toolchain = toolchain_for(
        [cell.model], [cell.exporter], store=Path(spec.store_path).expanduser(), providers=[cell.provider]
    )
    store = open_store(Path(spec.store_path), tuple(map(Path, toolchain.roots)), spec.store)
    settings = PlanSettings(spec.runner.threads, spec.measure)
    last, folder = _last(Path(composed.config.output.path).expanduser(), cell)
    if folder:
        print(f"compared with the last run of this cell, {folder}")
    print("\n".join(lines(cell, explain(cell, toolchain, settings, store, last), full=full)))
    return 0


def _last(outputs: Path, cell: PlannedCell) -> tuple[dict[str, list[str]], str]:
    """The keys of the newest run that has a record of this cell."""
    for folder in reversed(all_runs(outputs)):
        for record in files.read_records(folder):
            if record.cell == cell.cell and record.actions:
                keys: dict[str, list[str]] = {}
                for action in record.actions:
                    keys.setdefault(action.mnemonic, []).append(action.key)
                return keys, str(folder)
    return {}, ""
