"""`explain CELL [OVERRIDES]`: the keys of a cell's actions, entry by entry, and what differs from the last run's.

A cell's name as reports print it, and overrides as for the sweep, arrive; lines leave. Nothing is executed.
"""

from __future__ import annotations

from pathlib import Path

from batch_export.composition import Composed, compose_and_call
from batch_export.config_schema import nearest
from batch_export.errors import UsageError
from batch_export.explain import explain, lines
from batch_export.matrix import PlannedCell
from batch_export.plan import PlanSettings
from batch_export.report import run_folder as files
from batch_export.report.runs import all_runs
from batch_export.store import open_store
from batch_export.toolchain import toolchain_for
from batch_export.verbs.arguments import VerbParser


def run(arguments: list[str]) -> int:
    """Explains; the exit code is 0 when the cell was found."""
    parser = VerbParser("explain", "Shows the keys of a cell's actions and why they are executed or not.")
    parser.add_argument("cell", help="model/dynamic/opset20/provider/exporter, as reports print it")
    parser.add_argument("--full", action="store_true", help="long values whole")
    asked, overrides = parser.parse_known_args(arguments)
    words = asked.cell.split("/")
    if len(words) != 5 or not words[2].removeprefix("opset").isdigit():
        raise UsageError(
            f"{asked.cell!r} is not a cell's name. Next step: write model/dynamic/opset20/provider/exporter, e.g. "
            "bert_tiny/full/opset20/cpu/core"
        )
    model, dynamic, opset, provider, exporter = words
    chosen = [
        f"matrix.models=[{_quoted(model)}]",
        f"matrix.dynamic=[{_quoted(dynamic)}]",
        f"matrix.opsets=[{opset.removeprefix('opset')}]",
        f"matrix.providers=[{_quoted(provider)}]",
        f"matrix.exporters=[{_quoted(exporter)}]",
    ]
    return compose_and_call(
        lambda composed: _explain(composed, asked.cell, asked.full), [*overrides, *chosen], leave_no_trace=True
    )


def _quoted(word: str) -> str:
    if "'" in word or "\\" in word:
        raise UsageError(f"{word!r} is no name of a configuration")
    return f"'{word}'"


def _explain(composed: Composed, name: str, full: bool) -> int:
    from batch_export.cli import planned_cells  # lazy: the command line's module is what calls us

    spec, cells = planned_cells(composed)
    cell = next((item for item in cells if item.cell.name == name), None)
    if cell is None:
        near = nearest(name, tuple(item.cell.name for item in cells), 1)
        raise UsageError(f"The matrix has no cell {name!r}{f'; did you mean {near[0]}?' if near else ''}")
    if cell.skip:
        print("\n".join(lines(cell, [])))
        return 0
    toolchain = toolchain_for([cell.model], [cell.exporter])
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
