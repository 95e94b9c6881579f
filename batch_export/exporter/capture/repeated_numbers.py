"""During capture, one number in a list of free length (`[0] * batch`) is such a list, and keeps the size free.

Python itself repeats a list the example's number of times. Nothing arrives; leaves a context in which a size says what
a list of one number times itself is (`free_sequences.py`). Torch's own code, whose operators take lists of Python's
only, has Python's.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import torch

from batch_export.exporter.capture.free_sequences import FreeNumbers, Run

_NUMBERS = (int, float, bool, torch.SymInt)


@contextlib.contextmanager
def repeated_numbers() -> Iterator[None]:
    """Within, `[0] * size` and `size * [0]` have a free length in a model's code."""
    with (
        patch.object(torch.SymInt, "__mul__", _repeating(torch.SymInt.__mul__)),
        patch.object(torch.SymInt, "__rmul__", _repeating(torch.SymInt.__rmul__)),
    ):
        yield


def _repeating(product: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def times(size: Any, other: Any) -> Any:
        if type(other) is list and len(other) == 1 and type(other[0]) in _NUMBERS:
            caller = str(sys._getframe(1).f_globals.get("__name__", ""))
            if caller.partition(".")[0] != "torch":
                return FreeNumbers([Run(other[0], 0, torch.sym_max(size, 0))], list)
        return product(size, other)

    return times
