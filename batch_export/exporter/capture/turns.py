"""Captures, translations and comparisons take turns in a process.

They exchange functions and settings of torch while they run, which are the process's and not one thread's: of two at
once, the one that ends last would put back what the other one had set, for good.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_TURN = threading.RLock()


def in_turn(function: Callable[P, R]) -> Callable[P, R]:
    """The function, run while no other thread runs one of these; one may call another."""

    @functools.wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with _TURN:
            return function(*args, **kwargs)

    return alone
