"""A model's code that asks how a tensor lies in memory: a file has numbers in their order, and no such answer.

Arrives: nothing; a context is opened round a capture. Leaves: the lines at which strides, offsets or the memory itself
were asked for. Whether what they say decides what the model gives is found by runs of the model.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from contextvars import ContextVar

from batch_export.exporter.capture.guard_sources import users_frames

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
    """Notes the line of the model that is running, which calls one of `NOTED`."""
    noted = _NOTED.get()
    if noted is not None:
        for place in itertools.islice(users_frames(), 1):
            noted.setdefault(":".join(map(str, place)), method)
