"""Which of two files is slower: interleaved timings and the confidence interval of their ratio. Plain numbers only.

Two functions arrive, `PairedFacts` leave. They run in the order A B B A, so that what drifts (clock, caches, heat) hits
both alike; the interval of the median ratio comes from order statistics, so it holds for any distribution. A round in
which the process did not have its core to itself is left out. Nothing is judged here but the interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
from time import perf_counter_ns, process_time_ns

from batch_export.runtime.latency import median_interval

_CONTENDED = 1.1
_MIN_ROUNDS = 25
_SLICE_NS = 500_000
"""One timing lasts at least about this long, so that the clock's own cost does not count."""


@dataclass(frozen=True, slots=True)
class PairedFacts:
    """How much longer B takes than A.

    Attributes:
        ratio: median of B's time over A's; 1.0 when nothing was timed.
        low, high: 95 % confidence interval of that median.
        rounds: rounds that count.
        contended: most rounds shared their core with something else, so nothing follows from them.
        error: why nothing was measured.
    """

    ratio: float = 1.0
    low: float = 0.0
    high: float = float("inf")
    rounds: int = 0
    contended: bool = False
    error: str = ""

    def slower_than(self, threshold: float) -> bool:
        """Whether B is slower by more than `threshold` (1.05: five per cent), the whole interval saying so."""
        return not self.error and not self.contended and self.low > threshold


@dataclass(frozen=True, slots=True)
class Clock:
    """Wall and CPU time in nanoseconds; tests pass one of their own."""

    wall: Callable[[], int] = perf_counter_ns
    cpu: Callable[[], int] = process_time_ns


def paired(
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    budget_s: float,
    watch_cpu: bool = True,
    clock: Clock | None = None,
) -> PairedFacts:
    """Times two functions against each other for `budget_s` seconds.

    Args:
        first: A, the file of old.
        second: B, the new file.
        budget_s: seconds of timing in all.
        watch_cpu: whether wall time beyond CPU time means company (true of inference with one thread).
        clock: where time comes from.
    """
    clock = clock or Clock()
    loops = max(_loops(first, clock), _loops(second, clock))
    deadline = clock.wall() + int(budget_s * 1e9)
    ratios: list[float] = []
    disturbed = 0
    while clock.wall() < deadline or len(ratios) + disturbed < _MIN_ROUNDS:
        wall, cpu = clock.wall(), clock.cpu()
        a1, b1 = _timed(first, loops, clock), _timed(second, loops, clock)
        b2, a2 = _timed(second, loops, clock), _timed(first, loops, clock)
        if watch_cpu and clock.wall() - wall > _CONTENDED * (clock.cpu() - cpu):
            disturbed += 1
        else:
            ratios.append((b1 + b2) / max(a1 + a2, 1))
    return interval(ratios, disturbed)


def interval(ratios: Sequence[float], disturbed: int = 0) -> PairedFacts:
    """The median of ratios with its interval; `disturbed` rounds were left out."""
    contended = disturbed > len(ratios)
    if not ratios:
        return PairedFacts(contended=contended)
    logs = sorted(log(max(ratio, 1e-12)) for ratio in ratios)
    low, high = median_interval(len(logs))
    return PairedFacts(exp(median(logs)), exp(logs[low]), exp(logs[high]), len(logs), contended)


def _timed(run: Callable[[], object], loops: int, clock: Clock) -> int:
    before = clock.wall()
    for _ in range(loops):
        run()
    return clock.wall() - before


def _loops(run: Callable[[], object], clock: Clock) -> int:
    run()
    run()
    return max(1, min(1000, _SLICE_NS // max(_timed(run, 1, clock), 1)))
