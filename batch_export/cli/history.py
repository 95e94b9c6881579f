"""`history CELL`: what became of a cell run by run, and since when. `history rebuild`: from the run folders."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from batch_export.cli.arguments import VerbParser, add_outputs, offered_cells
from batch_export.errors import BatchExportError, UsageError
from batch_export.report import run_folder as files
from batch_export.report.history import HISTORY_FILE, Entry, History, open_history
from batch_export.report.runs import all_runs, records_of
from batch_export.report.trend import Trend, trend
from batch_export.report.wording import STYLES, error_text, latency_text
from batch_export.runner.surroundings import circumstances
from batch_export.sweeps.conclude import run_name
from batch_export.words import nearest


def run(arguments: list[str]) -> int:
    """Shows one cell's history, or makes the history again."""
    parser = VerbParser("history", "The history of a cell, such as bert_tiny/full/opset20/cpu/core.")
    parser.add_argument("cell", help="a cell's name, or `rebuild`")
    parser.add_argument("--runs", type=int, default=30, help="how many runs to show (default: 30)")
    add_outputs(parser)
    asked = parser.parse_args(arguments)
    path = asked.outputs / HISTORY_FILE
    if asked.cell == "rebuild":
        with open_history(path) as history:
            return _rebuild(history, asked.outputs)
    with open_history(path, create=False) as history:
        entries = history.entries(asked.cell)
        if not entries:
            near = nearest(asked.cell, history.cells())
            hint = f"nearest: {', '.join(near)}" if near else "`plan` lists the names of cells"
            raise UsageError(f"The history has no cell {asked.cell!r} ({hint})")
    _tell(Console(), entries, trend(entries), asked.runs)
    return 0


def offers(before: Sequence[str]) -> Iterable[str]:
    """What may come next on the command line."""
    return () if before else ["rebuild", *offered_cells(before)]


def _rebuild(history: History, outputs: Path) -> int:
    added, left_out = 0, 0
    for folder in all_runs(outputs):
        try:
            stored = files.read_run(folder)
            finished = (folder / files.SUMMARY_FILE).is_file() and not files.read_counts(folder).interrupted
            if finished:
                name = run_name(outputs.resolve(), folder.resolve())
                history.add(name, circumstances(folder), stored.command, records_of(folder))
                added += 1
        except BatchExportError as error:
            print(f"left out: {error}", file=sys.stderr)
            left_out += 1
    print(f"{history.path}: {added} runs" + (f", {left_out} could not be read" if left_out else ""))
    return 0


def _tell(console: Console, entries: Sequence[Entry], found: Trend, most: int) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("run", "outcome", "where", "error", "latency", "nodes", "commit"):
        right = name in ("error", "latency", "nodes")
        table.add_column(name, no_wrap=name != "where", min_width=len(name), justify="right" if right else "left")
    for entry in entries[-most:]:
        busy = "~" if entry.contended else ""
        table.add_row(
            entry.run,
            Text(entry.verdict, STYLES.get(entry.verdict, "")),
            f"{entry.stage} {entry.error_class}".strip(),
            error_text(entry.max_abs),
            f"{busy}{latency_text(entry.latency)}",
            "" if entry.nodes is None else str(entry.nodes),
            entry.commit,
        )
    console.print(table)
    for line in sentences(entries, found):
        console.print(Text(line), soft_wrap=True)


def sentences(entries: Sequence[Entry], found: Trend) -> list[str]:
    """What a trend says, a line each."""
    lines = [f"{found.runs} runs"]
    if found.bad and found.first_bad is not None:
        before = "" if found.last_good is None else f"; last good in {entries[found.last_good].run}"
        since = entries[found.first_bad]
        lines.append(f"bad since {since.run}{f' ({since.commit})' if since.commit else ''}{before}")
    if found.flips:
        lines.append(
            f"{'flaky' if found.flaky else 'changed once'}: {found.flips} changes of outcome although nothing else "
            f"changed ({(found.flake_rate or 0) * 100:.0f} % of such pairs of runs)"
        )
    lines += [
        f"latency stepped from {latency_text(step.before)} to {latency_text(step.after)} ms "
        f"({(step.ratio - 1) * 100:+.0f} %) in {entries[step.index].run}"
        for step in found.steps
    ]
    return lines
