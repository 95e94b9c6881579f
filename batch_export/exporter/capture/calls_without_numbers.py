"""Calls of torch that fail in a capture within a `try` whose handler goes on, and answers that only a capture gives.

A tensor without numbers has no `numpy()` and no copy; where forward catches that, the program has what the handler
does. Whether eager fails there too, as by a shape, only a run of the model tells.

Arrives: a capture that is about to run. Leaves: the lines of such calls.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType

import torch

from batch_export.exporter.capture.caught_failures import is_caught
from batch_export.exporter.capture.guard_sources import is_users, users_frames

_METHODS = frozenset(str(inspect.getsourcefile(one)) for one in (torch.Tensor, torch.overrides))
"""Where torch has methods of tensors that are Python's, and hands them on."""
_NOTED: ContextVar[list[str] | None] = ContextVar("_NOTED", default=None)
ANSWERED_OTHERWISE = frozenset({"data_ptr", "untyped_storage", "numpy", "__array__"})
"""Methods for a tensor's numbers: a capture has none, and dynamo has NumPy's functions as torch computes them."""


@contextlib.contextmanager
def calls_noted() -> Iterator[list[str]]:
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
    if frames and (is_caught(frames) if failed else _is_asked_by_model()):
        noted.append(":".join(map(str, frames[0])))


def note_answer() -> None:
    """Notes the line of the model that is running: it is told what only a capture answers."""
    noted = _NOTED.get()
    if noted is not None:
        noted.extend(":".join(map(str, one)) for one in itertools.islice(users_frames(), 1))


def note_line(line: str) -> None:
    """Notes a line (`file:line`) of which a capture made something by a second way."""
    noted = _NOTED.get()
    if noted is not None and line:
        noted.append(line)


def _is_asked_by_model() -> bool:
    """Whether the model's code calls the method of a tensor that is running, and not torch's or this exporter's."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code.co_name == "__torch_function__" or frame.f_code.co_filename in _METHODS):
        frame = frame.f_back  # modes hand on what they are called for
    return frame is not None and is_users(frame.f_code.co_filename)
