"""The page of many runs: what became of each cell run by run, its trends over time, and how to run it again.

Entries of a history arrive, the text of a static page leaves: no script, no network. It reads like a calendar: a column
is a run and links to its report, a model is a section that opens, a curve's axis is time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from urllib.parse import quote

import jinja2

from batch_export.nouns import counted
from batch_export.report.history import Entry
from batch_export.report.html import template
from batch_export.report.next_steps import verbs_for
from batch_export.report.rerun import only_cell
from batch_export.report.trend import sentences, trend
from batch_export.report.wording import GLYPHS, UNEXPECTED, error_text, latency_ms
from batch_export.version import __version__

_WIDTH, _HEIGHT, _EDGE = 150, 30, 4
"""Of a curve, in pixels."""


@dataclass(frozen=True, slots=True)
class Column:
    """A run: its name, day and time, and the address of its report."""

    run: str
    day: str
    time: str
    href: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One quantity over time, as points of an SVG; `dots` are the runs in which it was measured."""

    name: str
    said: str
    points: str
    dots: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True, slots=True)
class Square:
    """A cell in one run; no verdict where the run has no such cell."""

    verdict: str = ""
    glyph: str = ""
    title: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A cell over the runs."""

    name: str
    is_bad: bool
    squares: tuple[Square, ...]
    said: str
    curves: tuple[Curve, ...]
    commands: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A model: its cells, how many are bad in the newest run, and curves of their medians."""

    model: str
    bad: int
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]


def nights_html(
    past: Mapping[str, Sequence[Entry]],
    runs: Sequence[str],
    commands: Mapping[str, str],
    outputs: Path,
    page: Path,
) -> str:
    """Returns the page.

    Args:
        past: entries by cell, oldest first.
        runs: which are shown, oldest first.
        commands: the command line of each run.
        outputs: the folder of runs.
        page: the file that it will be; links are relative to it.
    """
    shown = {name: [entry for entry in entries if entry.run in runs] for name, entries in past.items()}
    started = {entry.run: entry.started for entries in shown.values() for entry in entries}
    columns = [_column(run, started.get(run, ""), outputs, page) for run in runs]
    times = {run: _seconds(started.get(run, "")) for run in runs}
    rows: dict[str, list[Row]] = {}
    for name, entries in shown.items():
        if entries:
            rows.setdefault(name.partition("/")[0], []).append(_row(name, entries, columns, times, commands, outputs))
    sections = [
        Section(
            model,
            sum(row.is_bad for row in of_model),
            tuple(sorted(of_model, key=lambda row: (not row.is_bad, row.name))),
            _curves([entry for row in of_model for entry in shown[row.name]], times),
        )
        for model, of_model in rows.items()
    ]
    sections.sort(key=lambda section: (not section.bad, section.model))
    bad = sum(section.bad for section in sections)
    head = f"{counted(bad, 'cell')} not as expected" if bad else f"all {counted(len(shown), 'cell')} as expected"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(template), autoescape=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template("nights.html.j2").render(
        style=template("report.css") + template("nights.css"), head=head, columns=columns, sections=sections,
        span=_span(columns), width=_WIDTH, height=_HEIGHT, version=__version__,
    )  # fmt: skip


def _span(columns: Sequence[Column]) -> str:
    if not columns:
        return "no run"
    return f"{counted(len(columns), 'run')}, {columns[0].day} {columns[0].time} to {columns[-1].day} {columns[-1].time}"


def _column(run: str, started: str, outputs: Path, page: Path) -> Column:
    day, _, time = started.partition("T")
    return Column(run, day, time[:5], _link(outputs / run / "report.html", page))


def _link(target: Path, page: Path) -> str:
    """A relative address; none where the file is gone, as in an archive of the history alone."""
    if not target.is_file():
        return ""
    return quote(Path(os.path.relpath(target.resolve(), page.resolve().parent)).as_posix())


def _seconds(started: str) -> float | None:
    try:
        return datetime.fromisoformat(started).timestamp()
    except ValueError:
        return None


def _row(
    name: str,
    entries: Sequence[Entry],
    columns: Sequence[Column],
    times: Mapping[str, float | None],
    commands: Mapping[str, str],
    outputs: Path,
) -> Row:
    by_run = {entry.run: entry for entry in entries}
    last = entries[-1]
    again = [only_cell(commands.get(last.run, ""), name)]
    verbs = verbs_for(last.verdict, last.stage, last.error_class)
    again += [f"python -m batch_export {verb} {name} --run {outputs / last.run}" for verb in verbs]
    said = sentences(entries, trend(entries))[1:]
    return Row(
        name,
        last.verdict in UNEXPECTED,
        tuple(_square(by_run.get(column.run), column, name) for column in columns),
        "; ".join(said),
        _curves(entries, times),
        tuple(again),
    )


def _square(entry: Entry | None, column: Column, name: str) -> Square:
    if entry is None:
        return Square()
    where = f" {entry.stage} {entry.error_class}".rstrip()
    title = f"{column.day} {column.time}: {entry.verdict}{where}" + (f", commit {entry.commit}" if entry.commit else "")
    href = f"{column.href}#cell={quote(name, safe='')}" if column.href else ""
    return Square(entry.verdict, GLYPHS[entry.verdict], title, href)


def _curves(entries: Sequence[Entry], times: Mapping[str, float | None]) -> tuple[Curve, ...]:
    """Curves of error, latency, bytes and seconds of export; of several cells their medians run by run."""
    by_run: dict[str, list[Entry]] = {}
    for entry in entries:
        by_run.setdefault(entry.run, []).append(entry)
    found = []
    for name, values in (
        ("error", {run: [one.max_abs for one in of_run] for run, of_run in by_run.items()}),
        ("latency", {run: [one.latency for one in of_run] for run, of_run in by_run.items()}),
        ("bytes", {run: [one.bytes for one in of_run] for run, of_run in by_run.items()}),
        ("export", {run: [one.export_s for one in of_run] for run, of_run in by_run.items()}),
    ):
        known = {run: [value for value in of_run if value is not None] for run, of_run in values.items()}
        series = [(run, float(median(of_run))) for run, of_run in known.items() if of_run]
        if series:
            found.append(_curve(name, sorted(series, key=lambda pair: times.get(pair[0]) or 0.0), times))
    return tuple(found)


def _curve(name: str, series: Sequence[tuple[str, float]], times: Mapping[str, float | None]) -> Curve:
    known = [time for time in times.values() if time is not None]
    first, last = min(known, default=0.0), max(known, default=0.0)
    low, high = min(value for _, value in series), max(value for _, value in series)
    dots = []
    for run, value in series:
        share = ((times.get(run) or first) - first) / (last - first) if last > first else 0.5
        rise = (value - low) / (high - low) if high > low else 0.5
        x = round(_EDGE + share * (_WIDTH - 2 * _EDGE), 1)
        y = round(_HEIGHT - _EDGE - rise * (_HEIGHT - 2 * _EDGE), 1)
        dots.append((x, y, f"{run}: {_text(name, value)}"))
    now = _text(name, series[-1][1])
    said = now if low == high else f"{now} ({_text(name, low)} to {_text(name, high)})"
    return Curve(name, said, " ".join(f"{x},{y}" for x, y, _ in dots), tuple(dots))


def _text(name: str, value: float) -> str:
    if name == "error":
        return error_text(value)
    if name == "latency":
        return latency_ms(value)
    return f"{value:.3g} s" if name == "export" else _bytes(value)


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.3g} {unit}"
        value /= 1024
    return f"{value:.3g} GiB"
