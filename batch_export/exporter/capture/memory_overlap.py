"""Writes ask whether elements of a tensor share memory: answered without a side on free sizes.

Arrives: nothing; a context is opened round a capture. Leaves: torch as it was. Before it copies into a tensor without
numbers, torch asks whether the tensor lies in order, which asks whether its sizes are 0 or 1; what it wants to know is
whether one of its strides is 0. A guard that comes of it takes sizes away, and what is captured later counts on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

_QUESTION = "_debug_has_internal_overlap"
_TOO_HARD = 2
"""torch's answer where it does not know."""


@contextlib.contextmanager
def overlap_without_guards() -> Iterator[None]:
    """While open, a tensor with free sizes overlaps only where it is expanded."""
    asked: Callable[[Tensor], int] | None = getattr(torch, _QUESTION, None)
    if asked is None:
        yield
        return

    def answered(tensor: Tensor) -> int:
        strides = tensor.stride()
        is_free = any(not isinstance(one, int) for one in (*tensor.shape, *strides))
        return asked(tensor) if not is_free or 0 in [one for one in strides if isinstance(one, int)] else _TOO_HARD

    setattr(torch, _QUESTION, answered)
    try:
        yield
    finally:
        setattr(torch, _QUESTION, asked)
