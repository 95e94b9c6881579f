"""A model's code that asks how a tensor lies in memory: a file has numbers in their order, and no such answer.

Arrives: nothing; a context is opened round a capture. Leaves: the lines at which strides, offsets or the memory itself
were asked for. Whether what they say decides what the model gives is found by runs of the model.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from types import FrameType

import torch

from batch_export.exporter.capture.guard_sources import is_users

_BETWEEN = frozenset({torch._tensor.__file__, torch.overrides.__file__})
"""Where methods of tensors are that are written in Python."""

ASKING = frozenset(
    {
        "stride",
        "is_contiguous",
        "storage_offset",
        "dim_order",
        "data_ptr",
        "storage",
        "_typed_storage",
        "untyped_storage",
    }
)
"""Methods of tensors that answer by the layout in memory."""

COPYING = "contiguous"
"""One that gives the tensor itself where its elements lie in order, of which no node is left: a write tells the two."""

NOTED = ASKING | {COPYING}
"""All methods that are noted."""

_NOTED: ContextVar[dict[str, str] | None] = ContextVar("_NOTED", default=None)


@contextlib.contextmanager
def layout_questions() -> Iterator[dict[str, str]]:
    """Gives a dict that has, in the end, lines of the model (`file:line`) -> the method that it called there."""
    noted: dict[str, str] = {}
    before = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(before)


def note(method: str) -> None:
    """Notes the line of the model that calls one of `NOTED`; torch and this exporter call them for their own ends."""
    noted = _NOTED.get()
    if noted is None:
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _hands_on(frame):
        frame = frame.f_back
    if frame is not None and is_users(frame.f_code.co_filename):
        noted.setdefault(f"{frame.f_code.co_filename}:{frame.f_lineno}", method)


def _hands_on(frame: FrameType) -> bool:
    """Whether a frame only stands between who calls a method and torch's function."""
    return frame.f_code.co_name == "__torch_function__" or frame.f_code.co_filename in _BETWEEN
