"""torch captures without taking sides on whether a free size is 0 or 1.

Arrives: nothing; a context is opened round a capture. Leaves: torch's setting as it was. Without it torch takes every
free size for 2 or more, so that a model's own branch at 1 leaves no trace, guards on many sizes that it need not know
(`n >= 4` of a slice), and takes several times as long where sizes are computed from sizes. A free axis must still have
two elements or more in the example: at 1 torch takes sides all the same (see `examples.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.fx.experimental import _config

_SETTING = "backed_size_oblivious"


@contextlib.contextmanager
def size_oblivious() -> Iterator[None]:
    """While open, torch's captures are size-oblivious, where this torch has that mode."""
    if not hasattr(_config, _SETTING):
        yield
        return
    with _config.patch({_SETTING: True}):  # type: ignore[attr-defined]
        yield
