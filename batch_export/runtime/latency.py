"""How long one run takes: a median that can be trusted, or an honest interval round it.

A function arrives, `LatencyFacts` leave. Runs are timed one by one until the 95 % confidence interval of the median
(from order statistics, so of any distribution) is within 5 % of it and three blocks of the time agree, or the budget is
spent. Nothing else must run beside it; if something did, the facts say so.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, sqrt
from time import perf_counter_ns, process_time_ns
from typing import Protocol

from batch_export.runtime.measuring import LatencyFacts, MeasureSpec
from batch_export.runtime.provider_spec import WARM_UP

_AGREEMENT = 0.05
_BLOCKS = 3
_WARM_UP_SHARE = 0.1
_CONTENDED = 1.1
_Z_95 = 1.96


class SelfTimed(Protocol):
    """A function whose work is done in another process, which times it there."""

    def timed(self) -> tuple[int, int]:
        """Runs it once; returns nanoseconds of wall and of CPU time."""


def measure(run: Callable[[], object], spec: MeasureSpec, warm_up: int = WARM_UP) -> LatencyFacts:
    """Times `run`.

    Args:
        run: one inference; one that is `SelfTimed` has its own word for how long it took.
        spec: `budget_s` bounds the whole measurement, `min_runs` and `min_s` when it may end early; at least one run is
            timed even if warming up has spent the budget.
        warm_up: runs before the first that is timed. Up to the usual number of them stop at a tenth of the budget; a
            provider that says more (a GPU whose kernels are chosen in the first runs) gets all of them.
    """
    begin = perf_counter_ns()
    deadline = begin + int(spec.budget_s * 1e9)
    _warm_up(run, warm_up, begin + int(spec.budget_s * _WARM_UP_SHARE * 1e9))
    durations: list[int] = []
    start, start_cpu = perf_counter_ns(), process_time_ns()
    earliest = start + int(spec.min_s * 1e9)
    next_look = spec.min_runs
    cpu_there = 0
    timed: Callable[[], tuple[int, int]] | None = getattr(run, "timed", None)  # of a `SelfTimed`
    while True:
        before = perf_counter_ns()
        if timed is not None:
            duration, cpu_of_run = timed()
            cpu_there += cpu_of_run
            now = perf_counter_ns()
        else:
            run()
            now = perf_counter_ns()
            duration = now - before
        durations.append(duration)
        if now >= deadline:
            break
        if len(durations) >= next_look and now >= earliest:
            if is_stable(durations):
                break
            next_look = ceil(len(durations) * 1.25)
    wall, cpu = perf_counter_ns() - start, process_time_ns() - start_cpu
    if cpu_there:
        wall, cpu = sum(durations), cpu_there
    ordered = sorted(durations)
    low, high = median_interval(len(ordered))
    return LatencyFacts(
        median=_median(ordered) / 1e6,
        p95=ordered[min(len(ordered) - 1, ceil(0.95 * len(ordered)) - 1)] / 1e6,
        ci_low=ordered[low] / 1e6,
        ci_high=ordered[high] / 1e6,
        runs=len(ordered),
        contended=spec.threads == 1 and wall > _CONTENDED * cpu,
    )


def median_interval(count: int) -> tuple[int, int]:
    """Returns the indices, in rising order of `count` values, between which the median lies with 95 % confidence."""
    half_width = _Z_95 * sqrt(count) / 2
    return max(0, floor(count / 2 - half_width)), min(count - 1, ceil(count / 2 + half_width))


def is_stable(durations: list[int]) -> bool:
    """Returns whether more runs would tell little: the median's interval is narrow and three blocks of time agree."""
    if len(durations) < _BLOCKS:
        return False
    ordered = sorted(durations)
    median = _median(ordered)
    low, high = median_interval(len(ordered))
    if ordered[high] - ordered[low] > 2 * _AGREEMENT * median:
        return False
    size = len(durations) // _BLOCKS
    medians = [_median(sorted(durations[index * size : (index + 1) * size])) for index in range(_BLOCKS)]
    return max(medians) - min(medians) <= _AGREEMENT * median


def _warm_up(run: Callable[[], object], times: int, deadline: int) -> None:
    for _ in range(times):
        run()
        if times <= WARM_UP and perf_counter_ns() >= deadline:
            return


def _median(ordered: list[int]) -> float:
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
