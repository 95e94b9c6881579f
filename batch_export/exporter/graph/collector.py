"""Python's collector of garbage while a model is exported: it looks through what is new, and not through everything.

Arrives: nothing. Leaves: the collector as it was. An export makes graphs of many small objects that live on; each time
their number has grown by a quarter, Python would look through all objects of the process, torch's own included.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_NEVER = 1_000_000
"""Collections of the middle generation before one of the oldest: more than an export makes."""


@contextlib.contextmanager
def young_only() -> Iterator[None]:
    """While open, objects that have lived for some time are not looked through.

    What becomes garbage at once is collected as ever, so memory stays what it was. Where another export in this process
    has opened it already, that one puts the thresholds back.
    """
    first, second, third = gc.get_threshold()
    if third >= _NEVER:
        yield
        return
    gc.set_threshold(first, second, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(first, second, third)
