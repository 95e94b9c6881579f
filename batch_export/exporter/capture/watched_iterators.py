"""Iterators and generators that a model keeps and that its forward advances (`next(self.rates)`).

Arrives: what a module holds. Leaves: in the place of an iterator one that gives the same and can be set back, since
Python's cannot; and in what place another one is, as far as it tells. Who exchanges them is `kept_contents.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import warnings
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

from batch_export.exporter.capture.guard_sources import users_location

_CONTAINERS: tuple[Any, ...] = ([], (), range(0), "", {}, {}.values(), {}.items(), set())
_FUNCTIONS = (
    "accumulate",
    "chain",
    "combinations",
    "compress",
    "count",
    "cycle",
    "dropwhile",
    "filterfalse",
    "groupby",
)
_MORE_FUNCTIONS = ("islice", "pairwise", "permutations", "product", "repeat", "starmap", "takewhile", "zip_longest")
ITERATORS: frozenset[type] = frozenset(
    {
        *(type(iter(one)) for one in _CONTAINERS),
        *(type(reversed([])), reversed, enumerate, zip, map, filter, GeneratorType),
        *(getattr(itertools, name) for name in (*_FUNCTIONS, *_MORE_FUNCTIONS)),
    }
)
"""Python's own kinds of iterators, of which each keeps its place."""


class WatchedIterator:
    """Gives what an iterator gives, and can go back to where it was.

    Attributes:
        position: how much was taken.
        line: `file:line` of the model's code that took the first.
    """

    def __init__(self, original: Iterator[Any]) -> None:
        self._original = original
        self._taken: list[Any] = []
        self._rest: Iterator[Any] | None = None
        self.position = 0
        self.line = ""

    def __iter__(self) -> WatchedIterator:
        return self

    def __next__(self) -> Any:
        self.line = self.line or users_location()
        if self.position == len(self._taken):
            self._taken.append(next(self._original))
        self.position += 1
        return self._taken[self.position - 1]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy that has nothing yet
            raise AttributeError(name)
        return getattr(self._original, name)

    def as_before(self) -> Iterator[Any]:
        """The iterator itself if nothing was taken of it, else one that gives what it would have given."""
        if not self._taken:
            return self._original
        self._rest = self._rest or itertools.chain(self._taken, self._original)
        return self._rest


def place(iterator: Any) -> object:
    """What tells how far one of Python's iterators is; None where nothing does."""
    if isinstance(iterator, GeneratorType):
        frame = iterator.gi_frame
        if frame is None:
            return "ended"
        numbers = {name: value for name, value in frame.f_locals.items() if type(value) in (int, float, str)}
        return frame.f_lasti, numbers
    if isinstance(iterator, (itertools.count, itertools.repeat)):
        return repr(iterator)
    if isinstance(iterator, itertools.cycle):
        with warnings.catch_warnings(), contextlib.suppress(AttributeError, TypeError, ValueError):
            warnings.simplefilter("ignore", DeprecationWarning)  # gone in Python 3.14
            state: Any = iterator.__reduce__()
            return operator.length_hint(state[1][0], -1), len(state[2][0]), state[2][1]
        return None
    return operator.length_hint(iterator, -1)
