"""What a cell's history says: since when it is bad, how often it flips, where its latency stepped. Pure functions.

Steps are found by binary segmentation on the logarithm of the latency: the split that lowers the sum of absolute
deviations most is kept when a permutation-free rank test (Mann-Whitney, normal approximation) says that both sides
differ and their medians are apart by more than a threshold; then each side is looked at alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import msgspec

from batch_export.report.history import Entry
from batch_export.report.making import agree
from batch_export.report.wording import UNEXPECTED, latency_ms
from batch_export.runner.surroundings import DIRTY

_LEAST = 3
"""Runs that a level needs on each side of a step."""
_Z = 2.2
"""About 1.4 % of false alarms, one-sided; three against three runs just reach 1.96, so two levels need more."""


@dataclass(frozen=True, slots=True)
class Step:
    """Latency changed its level: `index` is the first run of the new one."""

    index: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """New over old."""
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class Trend:
    """What a history comes to.

    Attributes:
        runs: how many runs have the cell.
        bad: whether it is bad in the newest.
        first_bad: index of the first run of the present bad stretch; None when it is fine.
        last_good: index of the last good run before that.
        flips: changes between good and bad without any change of the file, the versions, the commit, or what else is
            recorded of its making.
        flake_rate: flips over the pairs of runs in which nothing else changed; None without such pairs.
        steps: of the latency; contended runs do not count.
    """

    runs: int
    bad: bool
    first_bad: int | None
    last_good: int | None
    flips: int
    flake_rate: float | None
    steps: tuple[Step, ...]

    @property
    def flaky(self) -> bool:
        """Whether it went from good to bad and back although nothing changed."""
        return self.flips >= 2


def trend(entries: Sequence[Entry], threshold: float = 1.05) -> Trend:
    """Looks at a cell's entries, oldest first."""
    bad = [entry.verdict in UNEXPECTED for entry in entries]
    first_bad: int | None = None
    if bad and bad[-1]:
        first_bad = len(bad) - 1
        while first_bad and bad[first_bad - 1]:
            first_bad -= 1
    pairs = [(a, b) for a, b in pairwise(entries) if _same_making(a, b)]
    flips = sum((a.verdict in UNEXPECTED) != (b.verdict in UNEXPECTED) for a, b in pairs)
    timed = [(i, e.latency) for i, e in enumerate(entries) if e.latency and not e.contended]
    found = steps([value for _, value in timed], threshold)
    return Trend(
        runs=len(entries),
        bad=bool(bad and bad[-1]),
        first_bad=first_bad,
        last_good=None if not first_bad else first_bad - 1,
        flips=flips,
        flake_rate=flips / len(pairs) if pairs else None,
        steps=tuple(Step(timed[step.index][0], step.before, step.after) for step in found),
    )


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
        f"latency stepped from {latency_ms(step.before)} to {latency_ms(step.after)} "
        f"({(step.ratio - 1) * 100:+.0f} %) in {entries[step.index].run}"
        for step in found.steps
    ]
    return lines


def steps(values: Sequence[float], threshold: float = 1.05) -> tuple[Step, ...]:
    """The steps in a series of positive numbers, by position."""
    logs = [math.log(value) for value in values]
    cuts = sorted(_cuts(logs, 0, math.log(threshold)))
    edges = [0, *cuts, len(values)]
    levels = [median(values[a:b]) for a, b in pairwise(edges)] if values else []
    return tuple(Step(cut, levels[i], levels[i + 1]) for i, cut in enumerate(cuts))


def _cuts(logs: Sequence[float], offset: int, least: float) -> list[int]:
    best: tuple[float, int] | None = None
    for cut in range(_LEAST, len(logs) - _LEAST + 1):
        cost = _spread(logs[:cut]) + _spread(logs[cut:])
        if best is None or cost < best[0]:
            best = (cost, cut)
    if best is None:
        return []
    cut = best[1]
    left, right = logs[:cut], logs[cut:]
    if abs(median(right) - median(left)) <= least or not _apart(left, right):
        return []
    return [*_cuts(left, offset, least), offset + cut, *_cuts(right, offset + cut, least)]


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(value - middle) for value in values)


def _apart(left: Sequence[float], right: Sequence[float]) -> bool:
    """Mann-Whitney's U, as a z-score; small sides have to be apart completely."""
    n, m = len(left), len(right)
    wins = sum((b > a) + 0.5 * (b == a) for a in left for b in right)
    if min(n, m) < 5 and wins not in (0, n * m):
        return False
    if n + m < 8:
        return wins in (0, n * m) and max(left) - min(left) < abs(median(right) - median(left))
    spread = math.sqrt(n * m * (n + m + 1) / 12)
    return abs(wins - n * m / 2) / spread > _Z or wins in (0, n * m)


def _same_making(first: Entry, second: Entry) -> bool:
    """Whether nothing that could explain another verdict changed between two runs."""
    if (first.commit, first.versions, first.host) != (second.commit, second.versions, second.host):
        return False
    if first.sha256 and second.sha256 and first.sha256 != second.sha256:
        return False
    if first.making and second.making:
        return agree(msgspec.json.decode(first.making), msgspec.json.decode(second.making))
    return bool(first.commit) and not first.commit.endswith(DIRTY)  # all that tells of sources in older histories
