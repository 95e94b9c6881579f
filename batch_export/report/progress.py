"""Progress while a run goes on: a live view on a terminal, plain lines elsewhere. Implements
`runner.reporter.Reporter`.

Records, names of units and texts come in from the runner's threads, lines go to the console given; nothing is kept but
counts and times.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from batch_export.nouns import counted
from batch_export.record import Cell, Record
from batch_export.report.clusters import cluster_key
from batch_export.report.pace import Pace, left_text
from batch_export.report.wording import OUTCOMES, STYLES, UNEXPECTED
from batch_export.runner.reporter import Lane, Reporter
from batch_export.words import one_line

_LINE_EVERY_S = 2.0
_MOST_UNITS = 8
_BAR_WIDTH = 24


def reporter_for(console: Console) -> Reporter:
    """A live view when the console is a terminal that can redraw, plain lines otherwise."""
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveReporter(console)
    return LineReporter(console)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a unit's child is: the cell, the action (empty: none), and since when."""

    cell: Cell
    mnemonic: str
    since: float


@dataclass(frozen=True, slots=True)
class _Drawn:
    """What the live view shows."""

    total: int = 0
    began: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    verified: frozenset[Cell] = frozenset()
    pace: Pace = field(default_factory=Pace)
    places: Mapping[str, _Place] = field(default_factory=dict)
    has_begun: bool = False


class LiveReporter:
    """Counts, what is left, and the cell and action that each running unit is at, drawn anew in place.

    The first cell of each cause of failures scrolls past above, one line each; what went wrong is told at the end.

    What is drawn comes from a frozen value that is put in place of the one before: the thread that draws holds
    rich's lock and must not wait for ours.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._console = console
        self._causes = _Causes()
        self._drawn = _Drawn()
        self._live = Live(
            console=console, transient=True, refresh_per_second=4, get_renderable=self.picture, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip

    def started(self, cells: Sequence[Cell]) -> None:
        """Draws the empty bar."""
        with self._lock:
            self._drawn = _Drawn(total=len(cells), began=self._clock())
            self._live.start(refresh=True)

    def scheduled(self, lanes: Sequence[Lane]) -> None:
        """Takes the lanes for the estimate."""
        with self._lock:
            self._drawn = replace(self._drawn, pace=replace(self._drawn.pace, lanes=tuple(lanes)))

    def group_started(self, name: str) -> None:
        """Adds a line for the unit."""
        with self._lock:
            self._drawn = replace(self._drawn, pace=self._drawn.pace.began(name, self._clock()))

    def working(self, name: str, cell: Cell, mnemonic: str) -> None:
        """Puts cell and action into the unit's line; the action's clock starts."""
        with self._lock:
            places = {**self._drawn.places, name: _Place(cell, mnemonic, self._clock())}
            self._drawn = replace(self._drawn, places=places, has_begun=True)

    def group_finished(self, name: str) -> None:
        """Removes the unit's line."""
        with self._lock:
            places = {unit: place for unit, place in self._drawn.places.items() if unit != name}
            self._drawn = replace(self._drawn, pace=self._drawn.pace.ended(name, self._clock()), places=places)

    def verified(self, cell: Cell) -> None:
        """Moves the bar by one cell, which is still to be timed."""
        with self._lock:
            self._drawn = replace(self._drawn, verified=self._drawn.verified | {cell})

    def record(self, record: Record) -> None:
        """Moves the bar by one cell."""
        with self._lock:
            counts = Counter(self._drawn.counts)
            counts[record.verdict] += 1
            self._drawn = replace(self._drawn, counts=counts, verified=self._drawn.verified - {record.cell})
            if record.verdict in UNEXPECTED and self._causes.is_new(record):
                line = Text(unexpected_line(record), STYLES[record.verdict])
                self._console.print(line, no_wrap=True, overflow="ellipsis")

    def message(self, text: str) -> None:
        """Prints the line above the bar."""
        with self._lock:
            self._console.print(Text(one_line(text), "dim"), soft_wrap=True)

    def finished(self) -> None:
        """Removes what was drawn."""
        with self._lock:
            self._live.stop()

    def picture(self) -> RenderableType:
        """What is drawn now; no line is wider than the console."""
        drawn, now = self._drawn, self._clock()
        done = drawn.counts.total()
        gone = clock_text(now - drawn.began)
        left = left_text(drawn.pace.left_s(now)) if done < drawn.total else ""
        head = Table.grid(padding=(0, 1))
        head.add_row(
            self._bar(done + len(drawn.verified), max(1, drawn.total)),
            Text(f"{done}/{drawn.total}"),
            Text(said_text(drawn.counts, len(drawn.verified)), no_wrap=True, overflow="ellipsis"),
            Text(", ".join(filter(None, (gone, left))), "dim", no_wrap=True),
        )
        rows = [
            (_where(name, drawn.places.get(name)), _doing(drawn, name, now), self._spent(name, began, now))
            for name, began in drawn.pace.running.items()
        ]
        more = len(rows) - _MOST_UNITS + 1 if len(rows) > _MOST_UNITS else 0
        shown = rows[: _MOST_UNITS - 1] if more else rows
        lines = _aligned(shown, self._console.width)
        return Group(head, *lines, *([Text(f"  and {more} more", "dim")] if more else []))

    def _bar(self, done: int, total: int) -> RenderableType:
        """The bar; without colours its two parts are two characters."""
        if self._console.color_system is not None and not self._console.no_color:
            return ProgressBar(total=total, completed=done, width=_BAR_WIDTH)
        filled = _BAR_WIDTH * done // total
        return Text(f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}]")

    def _spent(self, name: str, began: float, now: float) -> str:
        expected = self._drawn.pace.expected(name)
        return clock_text(now - began) + (f" of about {clock_text(expected)}" if expected is not None else "")


def _where(unit: str, place: _Place | None) -> str:
    return place.cell.name if place is not None else unit


def _doing(drawn: _Drawn, name: str, now: float) -> str:
    """`Translate 0:07`. The first units wait for torch, which is imported once for all; later ones for a process."""
    place = drawn.places.get(name)
    if place is None:
        return "starting a process" if drawn.has_begun else "importing torch"
    return f"{place.mnemonic or 'waiting'} {clock_text(now - place.since)}"


def _aligned(rows: Sequence[tuple[str, str, str]], width: int) -> list[Text]:
    """Lines of a cell, what is done to it, and the unit's times, in columns; none is wider than `width`."""
    doing = max((len(middle) for _, middle, _ in rows), default=0)
    spent = max((len(right) for _, _, right in rows), default=0)
    room = max(12, width - doing - spent - 6)
    names = [_shortened(left, room) for left, _, _ in rows]
    longest = max(map(len, names), default=0)
    return [
        Text.assemble(f"  {name:<{longest}}  {middle:<{doing}}  ", (right, "dim"), no_wrap=True, overflow="ellipsis")
        for name, (_, middle, right) in zip(names, rows, strict=True)
    ]


def _shortened(name: str, room: int) -> str:
    """Cuts the model's part of a cell's name, since the rest distinguishes the cells of a model."""
    if len(name) <= room:
        return name
    model, slash, rest = name.partition("/")
    left = room - len(rest) - len(slash) - 3
    return f"{model[:left]}...{slash}{rest}" if left > 0 else name[: room - 3] + "..."


class LineReporter:
    """Plain lines without control codes: the first cell of each cause, and every two seconds how far the run is."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._causes = _Causes()
        self._verified: set[Cell] = set()
        self._console = console
        self._clock = clock
        self._total = 0
        self._said_at = 0.0
        self._pace = Pace()
        self._units = 0
        self._ended = 0

    def started(self, cells: Sequence[Cell]) -> None:
        """Says how many cells there are."""
        with self._lock:
            self._total = len(cells)
            self._said_at = self._clock()
            self._say(counted(self._total, "cell"))

    def scheduled(self, lanes: Sequence[Lane]) -> None:
        """Takes the lanes for the estimate."""
        with self._lock:
            self._pace = replace(self._pace, lanes=tuple(lanes))
            self._units, self._ended = len(lanes[0].units) if lanes else 0, 0

    def group_started(self, name: str) -> None:
        """Says nothing: a line per unit would drown the counts."""
        with self._lock:
            self._pace = self._pace.began(name, self._clock())

    def working(self, name: str, cell: Cell, mnemonic: str) -> None:
        """Says nothing."""

    def group_finished(self, name: str) -> None:
        """Says how many units are done, when that is due: records come only after the last of a cell's steps."""
        with self._lock:
            now = self._clock()
            self._pace = self._pace.ended(name, now)
            self._ended += 1
            self._say_when_due(now, name, f"{self._ended} of {counted(self._units, 'unit')} done")

    def verified(self, cell: Cell) -> None:
        """Counts; prints the counts when they are due."""
        with self._lock:
            self._verified.add(cell)
            self._say_when_due(self._clock(), cell.name)

    def record(self, record: Record) -> None:
        """Counts; prints the cell when it is unexpected, and the counts when they are due."""
        with self._lock:
            self._counts[record.verdict] += 1
            self._verified.discard(record.cell)
            done = self._counts.total()
            if record.verdict in UNEXPECTED and self._causes.is_new(record):
                self._say(unexpected_line(record))
            self._say_when_due(self._clock(), record.cell.name, always=done == self._total)

    def message(self, text: str) -> None:
        """Prints the line."""
        with self._lock:
            self._say(one_line(text))

    def finished(self) -> None:
        """Says nothing: the table follows."""

    def _say_when_due(self, now: float, last: str, more: str = "", *, always: bool = False) -> None:
        if always or now - self._said_at >= _LINE_EVERY_S:
            self._said_at = now
            done = self._counts.total()
            left = left_text(self._pace.left_s(now)) if done < self._total else ""
            counts = said_text(self._counts, len(self._verified))
            said = (f"[{done}/{self._total}] {counts}".strip(), more, f"last: {last}", left)
            self._say("; ".join(filter(None, said)))

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)


class _Causes:
    """Which causes of failures were seen already; the end of the run lists each of them."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, ...]] = set()

    def is_new(self, record: Record) -> bool:
        """Whether this is the first record of its cause."""
        key = cluster_key(record)
        known = key in self._seen
        self._seen.add(key)
        return not known


def clock_text(seconds: float) -> str:
    """`0:07`, `12:34`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counts_text(counts: Counter[str]) -> str:
    """`12 pass, 1 fail`."""
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])


def said_text(counts: Counter[str], verified: int) -> str:
    """`12 pass, 1 fail, 20 verified`: the last ones wait for being timed."""
    return ", ".join(filter(None, (counts_text(counts), f"{verified} verified" if verified else "")))


def unexpected_line(record: Record) -> str:
    """One line for a cell that did not end as expected; its message is told at the end of the run."""
    kind = one_line(f"{record.stage} {record.error_class}")
    return f"{record.verdict} {record.cell.name}: {kind}".rstrip(": ")
