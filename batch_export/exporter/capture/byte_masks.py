"""Masks of bytes, which are masks of truth values to torch when a model runs and are refused while it is captured.

Arrives: a call that a forward makes. Leaves: its arguments with such masks as truth values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_INDEXING = "__getitem__"
_CHOOSING: dict[Any, int] = {torch.where: 0, torch.Tensor.where: 1}
"""Function -> which of its arguments is the mask."""


def as_truths(function: Callable[..., Any], args: Sequence[Any]) -> Sequence[Any]:
    """The positional arguments of a call; those without a mask of bytes are the given ones."""
    if getattr(function, "__name__", "") == _INDEXING and len(args) > 1:
        index = args[1]
        places = tuple(map(_truth, index)) if isinstance(index, tuple) else _truth(index)
        return (args[0], places, *args[2:])
    place = _CHOOSING.get(function)
    if place is None or len(args) <= place:
        return args
    return (*args[:place], _truth(args[place]), *args[place + 1 :])


def _truth(one: Any) -> Any:
    return one.ne(0) if isinstance(one, torch.Tensor) and one.dtype == torch.uint8 else one
