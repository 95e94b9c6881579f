"""runtime/latency.py, with a clock of our own, so that no test depends on how busy the machine is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, cycle, repeat

import pytest

from batch_export.runtime import latency
from batch_export.runtime.measuring import MeasureSpec

MILLISECOND = 1_000_000


class Clock:
    """Time that passes only while the measured function runs; `cpu` is the share of it on the processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, durations: Iterable[float], cpu: float = 1.0) -> None:
        self.wall = 0
        self.runs = 0
        self._durations: Iterator[float] = iter(durations)
        monkeypatch.setattr(latency, "perf_counter_ns", lambda: self.wall)
        monkeypatch.setattr(latency, "process_time_ns", lambda: int(self.wall * cpu))

    def run(self) -> None:
        self.runs += 1
        self.wall += int(next(self._durations) * MILLISECOND)


def test_steady_runs_end_once_enough_time_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, repeat(2.0))
    facts = latency.measure(clock.run, MeasureSpec(budget_s=5.0, min_s=0.2, min_runs=20))
    assert (facts.median, facts.p95, facts.ci_low, facts.ci_high) == (2.0, 2.0, 2.0, 2.0)
    assert 100 <= facts.runs <= 130
    assert not facts.contended
    assert clock.runs == facts.runs + 3


def test_runs_that_a_provider_wants_for_warming_up_are_all_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first runs of a GPU choose its kernels: they are not cut off at a tenth of the budget, as ours are."""
    clock = Clock(monkeypatch, repeat(300.0))
    facts = latency.measure(clock.run, MeasureSpec(budget_s=1.0, min_s=0.2, min_runs=2), 10)
    assert clock.runs == facts.runs + 10
    clock = Clock(monkeypatch, repeat(300.0))
    facts = latency.measure(clock.run, MeasureSpec(budget_s=1.0, min_s=0.2, min_runs=2))
    assert clock.runs == facts.runs + 1
    clock = Clock(monkeypatch, repeat(2.0))
    assert latency.measure(clock.run, MeasureSpec(), 0).runs == clock.runs


def test_slow_runs_still_reach_the_least_number(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = latency.measure(Clock(monkeypatch, repeat(50.0)).run, MeasureSpec(budget_s=5.0, min_s=0.2, min_runs=20))
    assert facts.runs == 20


def test_unsteady_runs_go_on_until_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, (1 + 0.01 * index for index in count()))
    facts = latency.measure(clock.run, MeasureSpec(budget_s=1.0, min_s=0.1))
    assert 1e9 <= clock.wall <= 1.01e9
    assert facts.ci_low < facts.median < facts.ci_high


def test_a_run_longer_than_the_budget_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, repeat(9000.0))
    facts = latency.measure(clock.run, MeasureSpec(budget_s=5.0))
    assert (facts.runs, facts.median, facts.p95, clock.runs) == (1, 9000.0, 9000.0, 2)


@pytest.mark.parametrize(
    ("cpu", "threads", "contended"), [(1.0, 1, False), (0.95, 1, False), (0.5, 1, True), (0.5, 2, False)]
)
def test_wall_time_beyond_processor_time_is_contention(
    monkeypatch: pytest.MonkeyPatch, cpu: float, threads: int, contended: bool
) -> None:
    facts = latency.measure(Clock(monkeypatch, repeat(2.0), cpu).run, MeasureSpec(budget_s=1.0, threads=threads))
    assert facts.contended is contended


def test_outliers_move_the_p95_and_not_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = cycle([1.0] * 9 + [30.0])
    facts = latency.measure(Clock(monkeypatch, durations).run, MeasureSpec(budget_s=2.0))
    assert (facts.median, facts.ci_low, facts.ci_high, facts.p95) == (1.0, 1.0, 1.0, 30.0)


@pytest.mark.parametrize(("runs", "interval"), [(1, (0, 0)), (20, (5, 15)), (100, (40, 60)), (1000, (469, 531))])
def test_interval_of_the_median_is_that_of_order_statistics(runs: int, interval: tuple[int, int]) -> None:
    assert latency.median_interval(runs) == interval


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([100] * 30, True),
        ([100] * 10 + [100] * 10 + [110] * 10, False),
        ([100, 300] * 15, False),
        ([100], False),
    ],
)
def test_is_stable(durations: list[int], expected: bool) -> None:
    assert latency.is_stable(durations) is expected


def test_a_real_function_is_timed() -> None:
    facts = latency.measure(lambda: sum(range(1000)), MeasureSpec(budget_s=0.2, min_s=0.02))
    assert 0 < facts.ci_low <= facts.median <= facts.ci_high <= 50
    assert facts.runs >= 20
