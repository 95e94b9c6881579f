"""The search for the release at which an answer changes, as `git bisect` does it: pure, over whatever answers.

Releases in order and a function that tries one arrive; what was tried leaves, and between which two the answer changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial


@dataclass(frozen=True, slots=True)
class Tried:
    """One release that was tried.

    Attributes:
        version: the release.
        good: the answer; None: it could not be had, and the release is left out.
        word: the answer as people read it, such as `pass`.
        said: why, in a line; empty where there is nothing to say.
        ran: how many actions were executed for it; the others came from the store.
        seconds: how long it took.
    """

    version: str
    good: bool | None
    word: str
    said: str = ""
    ran: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to.

    Attributes:
        tried: in the order of the releases.
        before, first: the last release with the old answer, and the first with the new one; None where the answer is
            the same at both ends, or fewer than two releases have one.
        unsure: releases between those two that could not be tried: any of them may be the first.
    """

    tried: tuple[Tried, ...]
    before: Tried | None = None
    first: Tried | None = None
    unsure: tuple[str, ...] = field(default=())


def search(releases: Sequence[str], attempt: Callable[[str], Tried]) -> Found:
    """Tries both ends, then what lies in the middle of what is left, until the change is between two neighbours.

    A release that cannot be tried is left out; at an end the next one inwards takes its place that can, sought in
    steps that double, then by halves: releases too old for what a cell needs come in a row.

    Args:
        releases: oldest first.
        attempt: tries one; it is called once for each.
    """
    tried: dict[int, Tried] = {}

    def good(index: int) -> bool | None:
        if index not in tried:
            tried[index] = attempt(releases[index])
        return tried[index].good

    low = _end(range(len(releases)), lambda index: good(index) is not None)
    if low is None:
        return Found(_in_order(tried))
    high = _end(range(len(releases) - 1, low, -1), lambda index: good(index) is not None)
    if high is None or tried[low].good == tried[high].good:
        return Found(_in_order(tried))
    while left := [at for at in range(low + 1, high) if at not in tried or tried[at].good is not None]:
        middle = min(left, key=partial(_off_middle, low + high))
        answer = good(middle)
        if answer is None:
            continue
        if answer == tried[low].good:
            low = middle
        else:
            high = middle
    return Found(_in_order(tried), tried[low], tried[high], tuple(releases[low + 1 : high]))


def _end(places: Sequence[int], can: Callable[[int], bool]) -> int | None:
    """The first of the places, in order, that can be tried, if those before it are alike; None where none can be."""
    failing, step, asked = -1, 1, set[int]()
    while failing + 1 < len(places):
        at = min(failing + step, len(places) - 1)
        asked.add(at)
        if can(places[at]):
            break
        failing, step = at, 2 * step
    else:  # what the steps went over
        return next((place for at, place in enumerate(places) if at not in asked and can(place)), None)
    working = at
    while working - failing > 1:
        middle = (failing + working) // 2
        if can(places[middle]):
            working = middle
        else:
            failing = middle
    return places[working]


def _off_middle(ends: int, index: int) -> int:
    return abs(2 * index - ends)


def _in_order(tried: dict[int, Tried]) -> tuple[Tried, ...]:
    return tuple(tried[index] for index in sorted(tried))
