"""`explain CELL [--run RUN]`: the keys of a cell's actions and what differs; `explain BE201`: what an error means.

A cell's name as reports print it arrives, or an error's code or class; lines leave. The config folders and settings are
those of the newest run that has the cell, or of the one named; overrides that follow come after them.
Nothing is executed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from batch_export.cli.arguments import VerbParser, add_config_dirs, add_outputs, config_words, offered_cells
from batch_export.cli.one_cell import words_for
from batch_export.config.compose import Composed, compose_and_call
from batch_export.error_codes import explanation_of
from batch_export.error_codes import words as known_words
from batch_export.errors import UsageError
from batch_export.plan.explain import explain, lines
from batch_export.plan.matrix import PlannedCell
from batch_export.plan.walk import PlanSettings
from batch_export.record import Cell
from batch_export.report import run_folder as files
from batch_export.report.runs import all_runs
from batch_export.sources.toolchain import toolchain_for
from batch_export.store import open_store
from batch_export.sweeps.planned import planned_cells
from batch_export.words import nearest


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
    words = words_for(asked.cell, overrides, config_words(asked), asked.run, asked.outputs)
    return compose_and_call(lambda composed: _explain(composed, asked.cell, asked.full), words, leave_no_trace=True)


def _explain_error(word: str) -> int:
    found = explanation_of(word)
    if found is None:
        near = nearest(word, known_words(), 1)
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
