"""During capture, what Python computes of free sizes by operators that torch has no form of in a program.

Nothing arrives. Leaves: a context in which `max` and `min` of three sizes and more, or of fractions of sizes, are made
of those of two, for which torch has operators: Python itself compares the example's sizes, and keeps the one that is
larger there. Of a whole number and a fraction (`max(1, n / 4)`) it is a fraction. `n ^ 1` is made of `|` and `&`, since
no exported program may hold the operator itself. `n // 0.1` and `n % 0.1` are those of tensors, which take the
remainder away first as Python does: torch's quotient of sizes is the rounded one's (20 where Python has 19, at 2), and
it has no range for the remainder.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any
from unittest.mock import patch

import torch

from batch_export.exporter.capture import decided_by_sizes

_MAX, _MIN = builtins.max, builtins.min
_DYNAMOS = "torch._dynamo.variables.builtin"
"""Asks whether a function is `max`: any other in its place is `min` to it."""
_DIFFERENCES = ("__xor__", "__rxor__")
_NUMBERS = {int, float, torch.SymInt, torch.SymFloat}
_MAY_BE_UNREACHED: ContextVar[bool] = ContextVar("_MAY_BE_UNREACHED", default=False)
_FEWEST = 3
"""Fewer whole numbers are handed to operators by torch itself."""


def by_tensors(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Returns a function of symbolic and plain numbers by way of tensors, for what has no other form in a graph.

    Args:
        function: of tensors of float64, of which the result is one number.
    """

    def symbolic(*numbers: Any) -> Any:
        made: Any = function(*[torch.scalar_tensor(number, dtype=torch.float64) for number in numbers]).item()
        for number in numbers:
            if isinstance(number, (torch.SymInt, torch.SymFloat)):
                decided_by_sizes.note(made, number)
        return made

    return symbolic


def _remainder(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Python's, of which a zero has the divisor's sign."""
    rest = torch.remainder(one, other)
    return torch.where(rest == 0, torch.copysign(torch.zeros_like(rest), other), rest)


_QUOTIENTS = (
    *(("__floordiv__", torch.floor_divide, False), ("__rfloordiv__", torch.floor_divide, True)),
    *(("__mod__", _remainder, False), ("__rmod__", _remainder, True)),
)


@contextlib.contextmanager
def operators_of_sizes() -> Iterator[None]:
    """Within, Python's functions and operators take symbolic sizes as they are."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(builtins, "max", _larger))
        stack.enter_context(patch.object(builtins, "min", _smaller))
        dynamos = importlib.import_module(_DYNAMOS)  # lazy: what nobody captures does not wait for it
        for name, own in (("max", _MAX), ("min", _MIN)):
            stack.enter_context(patch.object(dynamos, name, own, create=True))
        for name in _DIFFERENCES:
            if hasattr(torch.SymInt, name):
                stack.enter_context(patch.object(torch.SymInt, name, _differing(getattr(torch.SymInt, name))))
        for kind in (torch.SymInt, torch.SymFloat):
            for name, function, is_reversed in _QUOTIENTS:
                if hasattr(kind, name):
                    divided = _divided(getattr(kind, name), function, is_reversed)
                    stack.enter_context(patch.object(kind, name, divided))
        yield


def _larger(*args: Any, **given: Any) -> Any:
    """`max`."""
    return functools.reduce(torch.sym_max, args) if _are_sizes(args) and not given else _MAX(*args, **given)


def _smaller(*args: Any, **given: Any) -> Any:
    """`min`."""
    return functools.reduce(torch.sym_min, args) if _are_sizes(args) and not given else _MIN(*args, **given)


def _are_sizes(args: Sequence[Any]) -> bool:
    """Whether operators of torch's are to be asked: for three sizes and more, or for a fraction of sizes."""
    kinds = {type(one) for one in args}
    are_whole = torch.SymInt in kinds and kinds <= {int, torch.SymInt} and len(args) >= _FEWEST
    return are_whole or (torch.SymFloat in kinds and kinds <= _NUMBERS and len(args) > 1)


def _differing(own: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def differing(one: Any, other: Any) -> Any:
        if type(other) not in (int, torch.SymInt):
            return own(one, other)
        return (one | other) - (one & other)

    return differing


def _divided(
    own: Callable[[Any, Any], Any], function: Callable[..., torch.Tensor], is_reversed: bool
) -> Callable[[Any, Any], Any]:
    def divided(one: Any, other: Any) -> Any:
        given = {type(one), type(other)}
        if not given <= _NUMBERS or given.isdisjoint({float, torch.SymFloat}):
            return _apart_from_zero(own, one, other, is_reversed) if _MAY_BE_UNREACHED.get() else own(one, other)
        return by_tensors(function)(*((other, one) if is_reversed else (one, other)))

    return divided


def by_what_is_not_zero(part: Callable[[], Any]) -> Any:
    """Returns what a function does, in which whole numbers of sizes are divided by 1 wherever the divisor is 0.

    Python does not work out the second part of `n and 100 // n > 5` where `n` is 0; a file works out both.

    Args:
        part: such a part.
    """
    token = _MAY_BE_UNREACHED.set(True)
    try:
        return part()
    finally:
        _MAY_BE_UNREACHED.reset(token)


def _apart_from_zero(own: Callable[[Any, Any], Any], one: Any, other: Any, is_reversed: bool) -> Any:
    divisor = one if is_reversed else other
    if not isinstance(divisor, torch.SymInt):
        return own(one, other)
    divisor = divisor + 1 - torch.sym_min(divisor * divisor, 1)
    return own(divisor, other) if is_reversed else own(one, divisor)
