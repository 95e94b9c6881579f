"""`history [CELL|GLOB|rebuild]`: what became of cells run by run, and since when. rebuild: from the run folders."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from batch_export.cli.arguments import VerbParser, a_count, add_outputs, offered_cells
from batch_export.errors import BatchExportError, UsageError
from batch_export.nouns import counted
from batch_export.report import run_folder as files
from batch_export.report.history import HISTORY_FILE, Entry, History, open_history
from batch_export.report.nights import nights_html
from batch_export.report.runs import all_runs, records_of, resolve_run
from batch_export.report.trend import Trend, sentences, trend
from batch_export.report.wording import ASCII_GLYPHS, GLYPHS, STYLES, error_text, latency_text
from batch_export.runner.surroundings import circumstances
from batch_export.sweeps.conclude import run_name
from batch_export.words import nearest

_MOST_CELLS = 200


def run(arguments: list[str]) -> int:
    """Shows one cell's history, or makes the history again."""
    parser = VerbParser("history", "The history of a cell, such as bert_tiny/full/opset20/cpu/core.")
    parser.add_argument(
        "cell", nargs="?", default="*", help="a cell's name, a glob such as 'bert*/full/*' (default: all), or `rebuild`"
    )
    parser.add_argument("--run", help="as it was at this run, in the history beside it: a folder, latest~1")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page of all these runs, static, with trends")
    parser.add_argument("--runs", type=a_count, default=30, help="how many runs to show (default: 30)")
    add_outputs(parser)
    asked = parser.parse_args(arguments)
    folder = resolve_run(asked.run, asked.outputs) if asked.run else None
    outputs = asked.outputs if folder is None else folder.parent.parent
    path = outputs / HISTORY_FILE
    if asked.cell == "rebuild":
        with open_history(path) as history:
            return _rebuild(history, outputs)
    with open_history(path, create=False) as history:
        runs = history.runs()
        if folder is not None and (name := run_name(outputs.resolve(), folder)) in runs:
            runs = runs[: runs.index(name) + 1]
        cells = history.cells()
        chosen = [asked.cell] if asked.cell in cells else [name for name in cells if fnmatchcase(name, asked.cell)]
        if not chosen:
            near = nearest(asked.cell, cells)
            hint = f"nearest: {', '.join(near)}" if near else "`plan` lists the names of cells"
            raise UsageError(f"The history has no cell {asked.cell!r} ({hint})")
        known = set(runs)
        past = {name: [entry for entry in history.entries(name) if entry.run in known] for name in chosen}
        commands = history.commands()
    if asked.html is not None:
        page = nights_html(past, runs[-asked.runs :], commands, outputs, asked.html)
        files.write_asked(asked.html, page.encode(), "--html")
        print(f"wrote {asked.html}: {counted(len(past), 'cell')}, {counted(len(runs[-asked.runs :]), 'run')}")
        return 0
    if asked.cell in past:
        _tell(Console(), past[asked.cell], trend(past[asked.cell]), asked.runs)
    else:
        _tell_all(Console(), past, runs[-asked.runs :])
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
                history.add(name, circumstances(folder), stored.command, records_of(folder), stored.spec)
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


def _tell_all(console: Console, past: Mapping[str, Sequence[Entry]], runs: Sequence[str]) -> None:
    """A line for each cell, those that are bad now first: its outcomes run by run, and since when."""
    ascii_only = not console.encoding.lower().startswith("utf")
    glyphs = ASCII_GLYPHS if ascii_only else GLYPHS
    rows: list[tuple[bool, str, Text, str]] = []
    for name, entries in past.items():
        found = trend(entries)
        by_run = {entry.run: entry for entry in entries}
        line = Text()
        for run in runs:
            entry = by_run.get(run)
            line.append(glyphs[entry.verdict] if entry else " ", STYLES[entry.verdict] if entry else "")
        rows.append((not found.bad, name, line, "; ".join(sentences(entries, found)[1:])))
    shown = sorted(rows, key=lambda row: row[:2])
    width = max((len(name) for _, name, _, _ in shown), default=0)
    for _, name, line, said in shown[:_MOST_CELLS]:
        console.print(Text.assemble(f"{name:<{width}}  ", line, f"  {said}" if said else ""), soft_wrap=True)
    if len(shown) > _MOST_CELLS:
        console.print(f"... and {len(shown) - _MOST_CELLS} more; a glob chooses among them", soft_wrap=True)
    if runs:
        span = runs[0] if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
        console.print(f"{counted(len(past), 'cell')}, {counted(len(runs), 'run')}: {span}", soft_wrap=True)
