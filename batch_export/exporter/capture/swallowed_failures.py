"""Calls of torch that fail in a capture within a `try` whose handler goes on, and answers that only a capture gives.

A tensor without numbers has no `numpy()` and no copy; where forward catches that, the program has what the handler
does. Whether eager fails there too, as by a shape, only a run of the model tells.

Arrives: a capture that is about to run. Leaves: the lines of such calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from batch_export.exporter.capture.caught_failures import is_caught
from batch_export.exporter.capture.guard_sources import users_frames

_NOTED: ContextVar[list[str] | None] = ContextVar("_NOTED", default=None)
ANSWERED_OTHERWISE = frozenset({"data_ptr", "untyped_storage", "numpy", "__array__"})
"""Methods for a tensor's numbers: a capture has none, and dynamo has NumPy's functions as torch computes them."""


@contextlib.contextmanager
def swallowed_failures() -> Iterator[list[str]]:
    """Gives a list that has, in the end, the lines (`file:line`) of such calls in the captures within."""
    noted: list[str] = []
    before = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(before)


def note(*, failed: bool) -> None:
    """Notes the line of the model that is running: a call failed and is caught, or gave a capture's answer."""
    noted = _NOTED.get()
    if noted is None:
        return
    frames = list(users_frames())
    if frames and (not failed or is_caught(frames)):
        noted.append(":".join(map(str, frames[0])))
