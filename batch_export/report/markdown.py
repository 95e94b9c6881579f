"""summary.md: counts, the table and the unexpected cells as Markdown. Records go in, text comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from batch_export.nouns import counted
from batch_export.record import Cell, Record
from batch_export.report.disagreements import sentences
from batch_export.report.failures import group_failures
from batch_export.report.redact import shorten
from batch_export.report.since import Since
from batch_export.report.summary import Summary
from batch_export.report.wording import GLYPHS, OUTCOMES, cell_text, legends, speed_up

_SPECIAL = str.maketrans({character: "\\" + character for character in "\\`*_{}[]<>|#"} | {"\n": " ", "\r": " "})


_FOLD_ABOVE = 400
"""Cells above which the tables are folded."""
_MOST_BYTES = 1_000_000
"""GitHub refuses a job summary of more than 1 MiB."""


def markdown(
    records: Sequence[Record],
    summary: Summary,
    since: Mapping[Cell, Since] | None = None,
    marks: Mapping[Cell, str] | None = None,
) -> str:
    """Returns the whole document; `since` says since when cells fail, `marks` which are new (`Comparison.marks`)."""
    counts = ", ".join(f"{summary.outcomes[outcome]} {outcome}" for outcome in OUTCOMES if summary.outcomes[outcome])
    lines = [
        "# batch_export",
        "",
        f"{counted(summary.planned, 'cell')}: {counts or 'none'}. "
        f"Ran {counted(summary.counts.ran, 'action')}, {summary.counts.cached} cached{summary.counts.uncached_text()}, "
        f"{summary.counts.wall_s:.1f} s." + (" **Interrupted.**" if summary.counts.interrupted else ""),
        "",
    ]
    if summary.command:
        fence = "`" * (3 + max((len(run) for run in summary.command.split("`")), default=0) * ("`" in summary.command))
        lines += [f"{fence}text", summary.command, fence, ""]
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(record.cell.table, []).append(record)
    for names, members in groups.items():
        table = _table(members)
        if len(records) > _FOLD_ABOVE:
            table = ["<details><summary>Show the table</summary>", "", *table, "", "</details>"]
        lines += [f"## {', '.join(map(escape, names))}", "", *table, ""]
    lines += [
        "A cell reads: outcome, largest absolute error, median latency in ms. Speed-up is eager PyTorch's time over "
        "the file's.",
        "",
    ]
    for note in legends(records):
        lines += [escape(note), ""]
    if summary.nothing_tested:
        lines += [f"**{summary.nothing_tested[:1].upper()}{summary.nothing_tested[1:]}.**", ""]
    failures = group_failures(records, name_exporter=True, marks=marks, since=since)
    if failures:
        lines += ["## Unexpected", ""]
        for group in failures:
            new = f"**{group.news}** " if group.news else ""
            lines.append(f"- {GLYPHS[group.verdict]} {new}**{escape(group.title)}**: {escape(group.kind)}")
            lines += [
                f"  {escape(text)}"
                for text in (group.cause, group.since, f"log: {group.log}" if group.log else "")
                if text
            ]
            lines += [f"  `{group.next}`"] if group.next and "`" not in group.next else []
        lines.append("")
    for title, reasons in (("Failed as expected", summary.xfail_reasons), ("Skipped", summary.skip_reasons)):
        if reasons:
            lines += [f"## {title}", "", *(f"- {count}: {escape(reason)}" for reason, count in reasons.items()), ""]
    disagreeing = sentences(summary.disagreements)
    if disagreeing:
        lines += ["## Where runtimes disagree", "", *(f"- {escape(line)}" for line in disagreeing), ""]
    stale = [f"expectation: {line}" for line in summary.stale_expectations]
    stale += [f"exclusion: {line}" for line in summary.stale_exclusions]
    if stale:
        lines += ["## Stale", "", *(f"- {escape(line)}" for line in stale), ""]
    return _cut(shorten("\n".join(lines)))


def _cut(text: str) -> str:
    """The text, cut at a line's end where a job summary could not hold it."""
    data = text.encode()
    if len(data) <= _MOST_BYTES:
        return text
    kept = data[:_MOST_BYTES].rpartition(b"\n")[0].decode("utf-8", "ignore")
    return f"{kept}\n\nCut here: the rest is in report.html and summary.csv.\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is."""
    return text.translate(_SPECIAL)


def _table(records: Sequence[Record]) -> list[str]:
    opsets = sorted({record.cell.opset for record in records})
    head = ["model", "dynamic", *(f"opset {opset}" for opset in opsets), "speed-up"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    rows: dict[tuple[str, str], dict[int, Record]] = {}
    for record in records:
        rows.setdefault((record.cell.model, record.cell.dynamic), {})[record.cell.opset] = record
    for (model, dynamic), by_opset in rows.items():
        cells = [escape(cell_text(by_opset[opset], GLYPHS)) if opset in by_opset else "" for opset in opsets]
        ratios = [ratio for r in by_opset.values() if r.verdict == "pass" and (ratio := speed_up(r)) is not None]
        last = f"{median(ratios):.2f}x" if ratios else ""
        lines.append(f"| {' | '.join([escape(model), escape(dynamic), *cells, last])} |")
    return lines
