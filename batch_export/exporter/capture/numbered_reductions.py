"""While torch decomposes a program, losses have the shape that their reduction asks for.

torch finds the shapes of some losses by functions that take the reduction as a word (`"none"`), and hands them the
operator's number, which is no word that they know: with a free size the loss of `nll_loss(reduction="none")` is one
number, and whatever reduces it is left out. While this is open their shapes are found by what eager runs.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def numbered_reductions() -> Iterator[None]:
    """Takes these functions out of torch's table, so that the operators are taken for what they are composed of."""
    parts: dict[Any, Callable[..., object]] = torch._decomp.decomposition_table
    taken = {target: parts.pop(target) for target in _in_words() if target in parts}
    try:
        yield
    finally:
        parts.update(taken)


@functools.cache
def _in_words() -> tuple[torch._ops.OpOverload, ...]:
    """Composite operators with a reduction, which is a number in all of them.

    Of the others torch's functions take the number, and eager has no composition of them.
    """
    return tuple(
        target
        for target in torch._decomp.decomposition_table
        if isinstance(target, torch._ops.OpOverload)
        and target._can_decompose()
        and any(argument.name == "reduction" for argument in target._schema.arguments)
    )
