"""How long a run will still take: from how long its units took before, and from what has ended so far. Pure.

Lanes and events arrive, a number of seconds leaves; the clock is the caller's.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from batch_export.runner.reporter import Lane

_OVERDUE = 0.1
"""Of the time that a unit has taken already: what it is taken to need when it is past what it took before."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Where a run's units are.

    Attributes:
        lanes: what was to run, lane after lane.
        running: when each running unit began, by name, in the order in which they began.
        took: seconds of the units that have ended, by name.
    """

    lanes: tuple[Lane, ...] = ()
    running: Mapping[str, float] = field(default_factory=dict)
    took: Mapping[str, float] = field(default_factory=dict)

    def began(self, name: str, now: float) -> Pace:
        """A unit begins; one that begins again began now."""
        return replace(self, running={**self.running, name: now})

    def ended(self, name: str, now: float) -> Pace:
        """A unit ends."""
        running = dict(self.running)
        since = running.pop(name, now)
        return replace(self, running=running, took={**self.took, name: now - since})

    def expected(self, name: str) -> float | None:
        """Seconds that a unit took when it last ran."""
        return next((seconds for lane in self.lanes for unit, seconds in lane.units if unit == name), None)

    def left_s(self, now: float) -> float | None:
        """Seconds that the run will still take; None when nothing is known of any unit."""
        known = [seconds for lane in self.lanes for _, seconds in lane.units if seconds is not None]
        known += self.took.values()
        if not known:
            return None
        usual = median(known)
        return sum(self._lane_s(lane, usual, now) for lane in self.lanes)

    def _lane_s(self, lane: Lane, usual: float, now: float) -> float:
        """Each waiting unit goes to the worker that is free first."""
        busy: list[float] = []
        waiting: list[float] = []
        for name, seconds in lane.units:
            expected = usual if seconds is None else seconds
            if name in self.running:
                gone = now - self.running[name]
                busy.append(max(expected - gone, _OVERDUE * gone))
            elif name not in self.took:
                waiting.append(expected)
        workers = busy + [0.0] * (lane.workers - len(busy))
        heapq.heapify(workers)
        for seconds in waiting:
            heapq.heappush(workers, heapq.heappop(workers) + seconds)
        return max(workers, default=0.0)


def left_text(seconds: float | None) -> str:
    """`about 40 s left`, `about 3 min left`, `about 1 h 20 min left`; empty when nothing is known."""
    if seconds is None:
        return ""
    if seconds < 55:
        return f"about {max(5, 5 * round(seconds / 5))} s left"
    minutes = max(1, round(seconds / 60))
    return f"about {minutes} min left" if minutes < 60 else f"about {minutes // 60} h {minutes % 60} min left"
