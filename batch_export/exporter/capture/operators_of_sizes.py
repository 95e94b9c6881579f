"""During capture, what Python computes of free sizes by operators that torch has no form of in a program.

Nothing arrives. Leaves: a context in which `max` and `min` of three sizes and more, or of fractions of sizes, are made
of those of two, for which torch has operators: Python itself compares the example's sizes, and keeps the one that is
larger there. Of a whole number and a fraction (`max(1, n / 4)`) it is a fraction. `n ^ 1` is made of `|` and `&`, since
no exported program may hold the operator itself.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import torch

_EXTREMES: Mapping[str, Callable[[Any, Any], Any]] = {"max": torch.sym_max, "min": torch.sym_min}
_DIFFERENCES = ("__xor__", "__rxor__")
_NUMBERS = {int, float, torch.SymInt, torch.SymFloat}
_FEWEST = 3
"""Fewer whole numbers are handed to operators by torch itself."""


@contextlib.contextmanager
def operators_of_sizes() -> Iterator[None]:
    """Within, Python's functions and operators take symbolic sizes as they are."""
    with contextlib.ExitStack() as stack:
        for name, of_two in _EXTREMES.items():
            stack.enter_context(patch.object(builtins, name, _of_several(getattr(builtins, name), of_two)))
        for name in _DIFFERENCES:
            if hasattr(torch.SymInt, name):
                stack.enter_context(patch.object(torch.SymInt, name, _differing(getattr(torch.SymInt, name))))
        yield


def _of_several(own: Callable[..., Any], of_two: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def extreme(*args: Any, **given: Any) -> Any:
        kinds = {type(one) for one in args}
        is_of_sizes = torch.SymInt in kinds and kinds <= {int, torch.SymInt} and len(args) >= _FEWEST
        is_of_fractions = torch.SymFloat in kinds and kinds <= _NUMBERS and len(args) > 1
        return functools.reduce(of_two, args) if (is_of_sizes or is_of_fractions) and not given else own(*args, **given)

    return extreme


def _differing(own: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def differing(one: Any, other: Any) -> Any:
        if type(other) not in (int, torch.SymInt):
            return own(one, other)
        return (one | other) - (one & other)

    return differing
