"""Two runs side by side: what broke, what was fixed, what vanished, what grew. Records go in, a `Comparison` comes out.

Pure: nothing is read, run or printed. Every cell has at most one entry about its verdict; the cells that pass on both
sides are looked at for growth. Latency is only suspected here: `confirmed` takes what a paired measurement said about
the suspects (`runner/remeasure.py`) and turns them into regressions, or into nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from batch_export.record import Cell, Record
from batch_export.report.wording import UNEXPECTED, error_text, latency_ms
from batch_export.runtime.paired import PairedFacts
from batch_export.steps import EXPORTING
from batch_export.words import one_line

Kind = Literal[
    "broke",
    "vanished",
    "earlier",
    "error",
    "slower",
    "size",
    "nodes",
    "still",
    "suspect",
    "busy",
    "export",
    "declared",
    "fixed",
    "new",
]
WORSE: tuple[Kind, ...] = ("broke", "vanished", "earlier", "error", "slower", "size", "nodes")
"""Kinds that make a comparison fail."""
KINDS: tuple[Kind, ...] = (*WORSE, "still", "suspect", "busy", "export", "declared", "fixed", "new")
TITLES: Mapping[Kind, str] = {
    "broke": "New failures",
    "vanished": "Vanished cells",
    "earlier": "Fail at an earlier stage now",
    "error": "Error grew",
    "slower": "Slower",
    "size": "File grew",
    "nodes": "More nodes",
    "still": "Still failing",
    "suspect": "Perhaps slower, not confirmed",
    "busy": "Perhaps slower, measured on a busy machine",
    "export": "Export takes longer",
    "declared": "Fail as declared now",
    "fixed": "Fixed",
    "new": "New cells",
}
STAGE_ORDER = ("environment", "model", "capture", "translate", "opset", "dynamic", "check", "load", "run", "mismatch")
"""How far a cell comes; crash, timeout and memory may happen anywhere, so they are neither earlier nor later."""

_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_ROUNDINGS = 8.0
SUSPECTED: tuple[Kind, ...] = ("suspect", "busy")
"""Kinds that a paired measurement decides."""
_BUSY_RATIO = 1.25
"""From where on a slowdown is told that was measured on a busy machine: less is what other work does to a latency."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From where on growth counts.

    Attributes:
        error: factor of the largest absolute error, beyond rounding (eight units in the last place of the largest
            value).
        latency: factor that the whole confidence interval of a paired measurement has to exceed.
        size, nodes: factors of the file's bytes (and at least 4 KiB more) and of its node count (and at least 2 more).
        export: factor of the seconds of capture and translation, and at least one second more; never a failure, since
            it is timed once, beside other work.
    """

    error: float = 4.0
    latency: float = 1.05
    size: float = 1.10
    nodes: float = 1.10
    export: float = 1.5


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one cell: `text` is one line for people, `before` and `after` what changed."""

    cell: Cell
    kind: Kind
    text: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two runs.

    Attributes:
        base, new: what the sides are called.
        changes: sorted by kind (the worst first), then by cell.
        common: cells that both sides have and neither skipped.
        contended: cells whose latency was not compared since the machine was busy on either side.
        latency: the geometric mean of new over base latency where both were measured well; None when nothing was.
        accepted: the base is a baseline that somebody accepted, so what still fails there is no news.
    """

    base: str
    new: str
    changes: tuple[Change, ...]
    common: int
    contended: int = 0
    latency: float | None = None
    accepted: bool = False

    def of(self, kind: Kind) -> tuple[Change, ...]:
        """The changes of one kind."""
        return tuple(change for change in self.changes if change.kind == kind)

    @property
    def worse(self) -> int:
        """How many changes are for the worse."""
        return sum(change.kind in WORSE for change in self.changes)

    @property
    def exit_code(self) -> int:
        """1 when something is worse, otherwise 0."""
        return 1 if self.worse else 0

    def marks(self) -> dict[Cell, str]:
        """`new`, `fixed` or `still` for the cells whose verdict says so; for tables."""
        names: dict[Kind, str] = {"broke": "new", "earlier": "still", "still": "still", "fixed": "fixed"}
        return {change.cell: names[change.kind] for change in self.changes if change.kind in names}

    def story(self) -> str:
        """One line: `3 new failures, 2 fixed, 1 vanished, latency -4 %`."""
        words: dict[Kind, tuple[str, str]] = {
            "broke": ("new failure", "new failures"),
            "vanished": ("vanished", "vanished"),
            "earlier": ("fails earlier", "fail earlier"),
            "error": ("larger error", "larger errors"),
            "slower": ("slower", "slower"),
            "size": ("larger file", "larger files"),
            "nodes": ("file with more nodes", "files with more nodes"),
            "still": ("still failing", "still failing"),
            "suspect": ("perhaps slower", "perhaps slower"),
            "busy": ("perhaps slower on a busy machine", "perhaps slower on a busy machine"),
            "declared": ("declared to fail", "declared to fail"),
            "fixed": ("fixed", "fixed"),
            "new": ("new cell", "new cells"),
        }
        parts = [f"{n} {words[kind][n > 1]}" for kind in KINDS if kind in words and (n := len(self.of(kind)))]
        if self.latency is not None and abs(self.latency - 1) >= 0.005:
            parts.append(f"latency {percent(self.latency)}")
        return ", ".join(parts) or "nothing changed"


def percent(ratio: float) -> str:
    """`+12 %`, `-4 %`."""
    return f"{(ratio - 1) * 100:+.0f} %"


def compare(
    base: Iterable[Record],
    new: Iterable[Record],
    *,
    base_name: str = "base",
    new_name: str = "new",
    thresholds: Thresholds | None = None,
    accepted: bool = False,
) -> Comparison:
    """Compares two runs; latencies that look worse become entries of the kind `suspect` (see `confirmed`)."""
    thresholds = thresholds or Thresholds()
    old = {record.cell: record for record in base}
    now = {record.cell: record for record in new}
    changes: list[Change] = []
    common = contended = 0
    logs: list[float] = []
    for cell in sorted({*old, *now}):
        before, after = old.get(cell), now.get(cell)
        change = _verdict_change(before, after)
        if change is not None:
            changes.append(change)
        if before is None or after is None or "skip" in (before.verdict, after.verdict):
            continue
        common += 1
        if before.verdict != "pass" or after.verdict != "pass":
            continue
        changes.extend(_growth(before, after, thresholds))
        ratio, busy = _latency_ratio(before, after)
        contended += busy
        if ratio is not None:
            logs.append(math.log(ratio))
    mean = math.exp(sum(logs) / len(logs)) if logs else None
    return Comparison(base_name, new_name, _sorted(changes), common, contended, mean, accepted)


def confirmed(comparison: Comparison, measured: Mapping[Cell, PairedFacts], threshold: float) -> Comparison:
    """Turns suspects into regressions or drops them, by what a paired measurement said.

    Args:
        comparison: with suspects.
        measured: facts by cell; a suspect without facts, with an error or on a busy machine stays a suspect.
        threshold: a factor such as 1.05.
    """
    changes: list[Change] = []
    for change in comparison.changes:
        facts = measured.get(change.cell) if change.kind in SUSPECTED else None
        if facts is None:
            changes.append(change)
        elif facts.error:
            changes.append(replace(change, text=f"{change.text}; could not be measured again: {facts.error}"))
        elif facts.contended:
            changes.append(replace(change, text=f"{change.text}; the machine was busy when it was measured again"))
        elif facts.slower_than(threshold):
            text = (
                f"{percent(facts.ratio)} (95 % of {percent(facts.low)} to {percent(facts.high)}, "
                f"{facts.rounds} interleaved rounds of the old file and the new one)"
            )
            changes.append(replace(change, kind="slower", text=text))
    return replace(comparison, changes=_sorted(changes))


def suspects(comparison: Comparison, *, busy: bool = False) -> tuple[Cell, ...]:
    """Cells whose latency has to be measured again; `busy`: those too that were measured on a busy machine."""
    kinds = SUSPECTED if busy else SUSPECTED[:1]
    return tuple(change.cell for kind in kinds for change in comparison.of(kind))


def export_seconds(record: Record) -> float | None:
    """Seconds of the actions that made the file, or None when there were none."""
    seconds = [action.seconds for action in record.actions if action.mnemonic in EXPORTING]
    return sum(seconds) if seconds else None


def rounding(record: Record) -> float:
    """The absolute error that ordinary rounding explains: some units in the last place of the largest values."""
    sizes = [
        _ROUNDINGS * _EPSILON.get(output.expected_dtype, 0.0) * output.hull[-1][0]
        for run in record.runs
        for output in run.outputs
        if output.hull
    ]
    return max(sizes, default=float(record.extra.get("rounding", 0.0)))


def for_comparison(record: Record) -> Record:
    """Returns what `compare` and the measurement of suspects need of a record: all but its runs' facts."""
    return replace(record, runs=(), findings=(), extra={**record.extra, "rounding": rounding(record)})


def _sorted(changes: Sequence[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: (KINDS.index(change.kind), change.cell)))


def _verdict_change(before: Record | None, after: Record | None) -> Change | None:
    if before is None or before.verdict == "skip":
        return _appeared(before, after)
    cell, was = before.cell, _state(before)
    if after is None or after.verdict == "skip":
        why = f"skipped: {one_line(after.message)}" if after is not None else "not in the new run"
        return Change(cell, "vanished", f"was {was}, now {why}", was, "skip" if after else "")
    now, message = _state(after), one_line(after.message)
    bad, worse = before.verdict in UNEXPECTED, after.verdict in UNEXPECTED
    if not bad and worse:
        return Change(cell, "broke", f"{now}: {message}" if message else now, was, now)
    if bad and worse:
        kind: Kind = "earlier" if _is_earlier(before, after) else "broke" if _is_other(before, after) else "still"
        said = f"{now}: {message}" if message else now
        return Change(cell, kind, said if kind == "still" else f"{said} (was {was})", was, now)
    if after.verdict == "xfail" and before.verdict != "xfail":
        return Change(cell, "declared", f"{after.extra.get('reason', message)} (was {was})", was, now)
    if after.verdict == "xfail" and _is_earlier(before, after):
        return Change(cell, "earlier", f"{now}: {message} (was {was})", was, now)
    if after.verdict == "pass" and before.verdict != "pass":
        return Change(cell, "fixed", f"was {was}", was, now)
    return None


def _appeared(before: Record | None, after: Record | None) -> Change | None:
    if after is None or after.verdict == "skip":
        return None
    now = _state(after)
    where = "was skipped before" if before is not None else "a new cell"
    if after.verdict in UNEXPECTED:
        return Change(after.cell, "broke", f"{now}: {one_line(after.message)} ({where})", "", now)
    return Change(after.cell, "new", f"{now} ({where})", "", now)


def _state(record: Record) -> str:
    """`pass`, `fail at mismatch ValueMismatch`."""
    kind = f"{record.stage} {record.error_class}".strip()
    return f"{record.verdict} at {kind}" if kind else record.verdict


def _is_earlier(before: Record, after: Record) -> bool:
    if before.stage not in STAGE_ORDER or after.stage not in STAGE_ORDER:
        return False
    return STAGE_ORDER.index(after.stage) < STAGE_ORDER.index(before.stage)


def _is_other(before: Record, after: Record) -> bool:
    """An unexpected pass that fails now, or a failure that is no longer even reported, is news."""
    return before.verdict == "xpass" and after.verdict != "xpass"


def _growth(before: Record, after: Record, limits: Thresholds) -> Iterator[Change]:
    cell = after.cell
    was, now = before.max_abs, after.max_abs
    if was is not None and now is not None and now > limits.error * was and now > max(rounding(after), 0.0):
        times = f"{now / was:.3g} times" if was else "from zero"
        yield Change(
            cell, "error", f"{error_text(was)} to {error_text(now)} ({times})", error_text(was), error_text(now)
        )
    if before.onnx is not None and after.onnx is not None:
        small, large = before.onnx.bytes, after.onnx.bytes
        if small and large > limits.size * small and large - small >= 4096:
            yield Change(
                cell, "size", f"{small:,} to {large:,} bytes ({percent(large / small)})", str(small), str(large)
            )
        few, many = before.onnx.nodes, after.onnx.nodes
        if few and many > limits.nodes * few and many - few >= 2:
            yield Change(cell, "nodes", f"{few} to {many} nodes ({percent(many / few)})", str(few), str(many))
    short, long = export_seconds(before), export_seconds(after)
    if short and long and long > limits.export * short and long - short >= 1.0:
        yield Change(cell, "export", f"{short:.1f} s to {long:.1f} s", f"{short:.1f} s", f"{long:.1f} s")
    suspect = _suspect(before, after, limits)
    if suspect is not None:
        yield suspect


def _latency_ratio(before: Record, after: Record) -> tuple[float | None, bool]:
    old, now = before.latency_ms, after.latency_ms
    if old is None or now is None or old.median <= 0 or now.median <= 0:
        return None, False
    if old.contended or now.contended:
        return None, True
    return now.median / old.median, False


def _suspect(before: Record, after: Record, limits: Thresholds) -> Change | None:
    ratio, busy = _latency_ratio(before, after)
    old, now = before.latency_ms, after.latency_ms
    if old is None or now is None or (ratio is None and not busy) or now.ci_low <= old.ci_high:
        return None
    ratio = now.median / old.median
    if ratio <= max(limits.latency, _BUSY_RATIO if busy else 0.0):
        return None
    was, is_now = latency_ms(old.median), latency_ms(now.median)
    text = f"{was} to {is_now} ({percent(ratio)})"
    if before.onnx is not None and after.onnx is not None and before.onnx.sha256 == after.onnx.sha256:
        text += "; the file is the same, so the runtime or the machine changed"
    return Change(after.cell, "busy" if busy else "suspect", text, was, is_now)
