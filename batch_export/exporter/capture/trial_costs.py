"""How long runs of a model at other sizes take, and which of them are left alone for that.

Arrives: the elements of each run's inputs, and the seconds that it computed. Leaves: whether inputs of more elements
may be run. The clock has no say: what else the machine does is no measure of a model, nor is what Python's collector
does, which goes through all objects of a process that may have millions.
"""

from __future__ import annotations

import contextlib
import gc
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

_SECONDS = 2.5
"""For how long a run may compute without those of more elements being left alone, if another one does as well."""
_SURELY = 4 * _SECONDS
"""For how long one run alone may."""
_LONG = 5.0
"""For how long a run may be likely to compute, by how long others did, for it to be tried."""
_ENOUGH = 20.0
"""For how long runs may compute together without those that are not due to all being left out."""
_AGREEING, _TOGETHER = 4, 3.0
"""At how many sizes at which one guard is false model and program agree, and for how long runs there compute together,
before further ones of more elements are left alone.
"""
_TELLING, _TIMES = 0.3, 1.5
"""How long the larger one of two runs has to compute, and with how many times the elements, to tell of others."""
_STEEPEST = 2.0
"""The power of the elements with which what a run takes may grow."""


@contextlib.contextmanager
def computing() -> Iterator[list[float]]:
    """Within, this thread computes; gives a list that gets the seconds of that, without those of the collector."""
    seconds: list[float] = []
    own, collected, begun_at = threading.get_ident(), 0.0, 0.0

    def hear(phase: str, _: dict[str, int]) -> None:
        nonlocal collected, begun_at
        if threading.get_ident() == own:
            if phase == "start":
                begun_at = time.thread_time()
            else:
                collected += time.thread_time() - begun_at

    gc.callbacks.append(hear)
    begun = time.thread_time()
    try:
        yield seconds
    finally:
        seconds.append(time.thread_time() - begun - collected)
        gc.callbacks.remove(hear)


@dataclass(slots=True)
class TrialCosts:
    """What runs took so far.

    Attributes:
        slow: the fewest elements of a run that took long.
        doubted: those of the only one that did: something may have been loaded or compiled meanwhile.
        seconds: by the number of elements, of runs that came to their end.
        total: the seconds of all runs.
    """

    slow: float = math.inf
    doubted: int | None = None
    seconds: dict[int, float] = field(default_factory=dict)
    total: float = 0.0

    @property
    def has_time_left(self) -> bool:
        """Whether all runs together have not taken long."""
        return self.total < _ENOUGH

    def of_one_guard(self) -> Agreeing:
        """What agrees at sizes at which one guard is false, of which none is run yet."""
        return Agreeing(self, self.total)

    def note(self, elements: int, seconds: float, *, has_ended: bool) -> None:
        """What a run took."""
        self.total += seconds
        if has_ended:
            self.seconds[elements] = min(seconds, self.seconds.get(elements, math.inf))
        if seconds <= _SECONDS:
            if has_ended and self.doubted is not None and elements >= self.doubted:
                self.doubted = None
        elif seconds > _SURELY or self.doubted is not None:
            self.slow = min(self.slow, elements, math.inf if self.doubted is None else self.doubted)
        else:
            self.doubted = elements

    def are_left_alone(self, elements: int) -> bool:
        """Whether inputs of so many elements take too long."""
        return elements > self.slow or self._likely(elements) > _LONG

    def _likely(self, elements: int) -> float:
        """What a run of more elements than those before takes if it goes on growing as from the largest one but those
        that are hardly smaller.
        """
        most = max(self.seconds, default=0)
        fewer = max((one for one in self.seconds if _TIMES * one <= most), default=0)
        if not fewer or elements <= most or self.seconds[most] < _TELLING:
            return 0.0
        grows = math.log(self.seconds[most] / max(self.seconds[fewer], 1e-9)) / math.log(most / fewer)
        if most == self.doubted and grows > 2 * _STEEPEST:  # no model grows so
            return 0.0
        return self.seconds[most] * float((elements / most) ** min(grows, _STEEPEST))


@dataclass(slots=True)
class Agreeing:
    """Runs at sizes at which one guard is false, as far as program and model agree there.

    Attributes:
        costs: what all runs took.
        begun: what those took that were before this guard's first.
        elements: those of the inputs of each run.
    """

    costs: TrialCosts
    begun: float
    elements: list[int] = field(default_factory=list)

    def say_enough_of(self, elements: int) -> bool:
        """Whether several agree and took long together, so that one of so many elements need not be run."""
        has_several = len(self.elements) >= _AGREEING
        return has_several and elements > min(self.elements) and self.costs.total - self.begun > _TOGETHER
