"""Random numbers that forward draws from Python or numpy: those of the capture are in the file for ever.

Nothing arrives. Leaves: the names of the generators that were drawn from. torch's own are operators of the program.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from contextvars import ContextVar

import numpy as np

_DRAWN: ContextVar[set[str]] = ContextVar("_DRAWN")


@contextlib.contextmanager
def drawn_numbers() -> Iterator[set[str]]:
    """Gives a set that has, in the end, the modules whose generators were drawn from."""
    before = _DRAWN.set(set())
    try:
        yield _DRAWN.get()
    finally:
        _DRAWN.reset(before)


@contextlib.contextmanager
def draws_noted() -> Iterator[None]:
    """Has draws noted when it is left; whoever puts the generators back stands round it."""
    python, numpys = random.getstate(), _numpys()
    try:
        yield
    finally:
        found = _DRAWN.get(set())
        if random.getstate() != python:
            found.add("random")
        if _numpys() != numpys:
            found.add("numpy.random")


def _numpys() -> tuple[object, ...]:
    name, keys, *rest = np.random.get_state()
    return name, bytes(np.asarray(keys)), *rest
