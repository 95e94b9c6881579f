"""Where a warning points: the line of the user's own code that called this package."""

from __future__ import annotations

import inspect

_PACKAGE = __name__.split(".")[0]


def users_level() -> int:
    """The `stacklevel` with which a warning points at the user's call, however deep in this package it arises.

    Python shows deprecations where they are in the user's own script, and every other warning with that line.
    """
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    return level
