"""What a finished run says on the terminal, in order: table, unexpected cells, counts, where the files are.

Records and a summary go in, lines go to the console given; nothing is judged or written to a file.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from batch_export.nouns import counted
from batch_export.record import Cell, Record
from batch_export.report.compare import Comparison
from batch_export.report.compare_text import tell_comparison
from batch_export.report.disagreements import sentences
from batch_export.report.failures import FailureGroup, group_failures
from batch_export.report.since import Since
from batch_export.report.summary import Summary
from batch_export.report.table import legend, tables
from batch_export.report.wording import ASCII_GLYPHS, GLYPHS, OUTCOMES, STYLES

_MOST_FAILURES = 40
_MOST_REASONS = 8


def tell(
    console: Console,
    records: Sequence[Record],
    summary: Summary,
    run_folder: Path,
    comparison: Comparison | None = None,
    *,
    brief: bool = False,
    since: Mapping[Cell, Since] | None = None,
) -> None:
    """Prints what a run came to, and its comparison with a baseline if there is one; each failure is told once.

    Args:
        console: where to.
        records: judged, one per planned cell.
        summary: of these.
        run_folder: where the files are.
        comparison: with a base.
        brief: leaves out the table and all that ended as expected.
        since: since when cells fail.
    """
    ascii_only = not console.encoding.lower().startswith("utf")
    marks = comparison.marks() if comparison is not None else {}
    if records and not brief:
        for table in tables(records, width=console.width, ascii_only=ascii_only, marks=marks):
            console.print(table)
            console.print()
        for line in legend(records, ascii_only=ascii_only, marks=marks):
            console.print(Text(line, "dim"))
    several = len({record.cell.exporter for record in records}) > 1
    groups = group_failures(records, name_exporter=several, marks=marks, since=since)
    _tell_failures(console, groups, run_folder, ASCII_GLYPHS if ascii_only else GLYPHS)
    if groups or not brief:
        console.print()
    for reason, count in [] if brief else list(summary.skip_reasons.items())[:_MOST_REASONS]:
        console.print(Text(f"skipped {count}: {reason}", "dim"), soft_wrap=True)
    for reason, count in [] if brief else list(summary.xfail_reasons.items())[:_MOST_REASONS]:
        console.print(Text(f"failed as expected {count}: {reason}", "dim"), soft_wrap=True)
    for sentence in sentences(summary.disagreements):
        console.print(Text(f"disagreement: {sentence}", "yellow"), soft_wrap=True)
    for sentence in summary.stale_expectations:
        console.print(Text(f"stale expectation: {sentence}", "yellow"), soft_wrap=True)
    for sentence in summary.stale_exclusions:
        console.print(Text(f"stale exclusion: {sentence}", "yellow"), soft_wrap=True)
    if comparison is not None:
        tell_comparison(console, comparison, told={cell for group in groups for cell in group.cells}, brief=brief)
    console.print(counts_line(summary), soft_wrap=True)
    if summary.nothing_tested:
        console.print(Text(summary.nothing_tested, "bold red"), soft_wrap=True)
    console.print(
        Text(f"{folder_text(run_folder)}: summary.md, summary.json, summary.csv, records.jsonl, report.html"),
        soft_wrap=True,
    )


def counts_line(summary: Summary) -> Text:
    """`200 cells: 180 pass, 20 skip · ran 12 actions, 800 cached · 61.2 s`."""
    line = Text(f"{counted(summary.planned, 'cell')}: ")
    present = [outcome for outcome in OUTCOMES if summary.outcomes[outcome]]
    for index, outcome in enumerate(present):
        line.append(", " if index else "")
        line.append(f"{summary.outcomes[outcome]} {outcome}", STYLES[outcome])
    line.append(f"; ran {counted(summary.counts.ran, 'action')}, {summary.counts.cached} cached")
    line.append(summary.counts.uncached_text())
    line.append(f"; {summary.counts.wall_s:.1f} s")
    return line


def folder_text(folder: Path) -> str:
    """The folder relative to the current one where it lies below it."""
    try:
        return str(folder.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(folder)


def _tell_failures(console: Console, groups: list[FailureGroup], run_folder: Path, glyphs: dict[str, str]) -> None:
    for group in groups[:_MOST_FAILURES]:
        console.print()
        head = Text(f"{glyphs[group.verdict]} ", STYLES[group.verdict])
        if group.news:
            head.append(f"{group.news} ", "bold red")
        head.append(group.title, "bold")
        head.append(f": {group.kind}")
        console.print(head)
        for sentence in filter(None, (group.cause, group.since)):
            _tell_indented(console, sentence)
        if group.next:
            console.print(Text(f"  next: {group.next}", "dim"), soft_wrap=True)
        if group.log:
            console.print(Text(f"  log: {folder_text(run_folder / group.log)}", "dim"), soft_wrap=True)
    if len(groups) > _MOST_FAILURES:
        console.print(Text(f"\n... and {len(groups) - _MOST_FAILURES} more causes, all in summary.md"))


def _tell_indented(console: Console, sentence: str) -> None:
    """A sentence below its heading: on a terminal its lines end between words; in a log it is one line.

    A path that is longer than a line is left whole, so that it can be copied.
    """
    width = max(1, console.width - len(_INDENT))
    fitting = textwrap.wrap(sentence, width, break_long_words=False, break_on_hyphens=False)
    for line in fitting if console.is_terminal else [sentence]:
        console.print(Text(f"{_INDENT}{line}"), soft_wrap=True)


_INDENT = "  "
