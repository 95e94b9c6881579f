"""During capture, functions of numbers give what Python's give: `math.pow` a fraction, `round(n, -1)` whole tens.

Nothing arrives. Leaves: a context in which they do, and `max` and `min` too (`either_kinds.py`). Torch's capture takes
`a ** b` for `math.pow(a, b)`, so that one of whole numbers is whole: a tensor of whole numbers times it stays one,
where it is one of fractions in eager. To what digits a size is to be rounded it does not ask.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import torch
from torch.export import _trace
from torch.fx.experimental.symbolic_shapes import statically_known_true

from batch_export.exporter.capture import either_kinds

POW = math.pow
_MAX, _MIN = builtins.max, builtins.min
_TORCHS = "_override_builtin_ops"
"""Torch's context with functions of its own in place of Python's, as the part of it that captures calls it."""
_SYMBOLIC = (torch.SymInt, torch.SymFloat)
_PARTS: Mapping[type, Mapping[str, Callable[[Any], Any]]] = {
    torch.SymInt: {
        "real": lambda one: one,
        "imag": lambda _: 0,
        "numerator": lambda one: one,
        "denominator": lambda _: 1,
    },
    torch.SymFloat: {"real": lambda one: one, "imag": lambda _: 0.0},
}
"""What Python's numbers have and torch's have not."""
_MOST_DIGITS = 18
"""That a whole number of 64 bits may be rounded to."""


@contextlib.contextmanager
def python_numbers() -> Iterator[None]:
    """Within, a model that torch captures gets of these functions what it gets in eager."""
    torchs = getattr(_trace, _TORCHS, None)
    with contextlib.ExitStack() as stack:
        if torchs is not None:

            @contextlib.contextmanager
            def other_functions() -> Iterator[None]:
                with torchs(), either_kinds.settling_once_there_are_any(), contextlib.ExitStack() as within:
                    within.enter_context(patch.object(math, "pow", power))
                    for name, own in (("max", _MAX), ("min", _MIN)):
                        replaced = functools.partial(either_kinds.extreme, own, getattr(builtins, name))
                        within.enter_context(patch.object(builtins, name, replaced))
                    yield

            stack.enter_context(patch.object(_trace, _TORCHS, other_functions))
        stack.enter_context(patch.object(torch.SymInt, "__round__", _rounded))
        stack.enter_context(patch.object(torch.SymFloat, "is_integer", _is_whole))
        for name, are_alike in (("__eq__", True), ("__ne__", False)):
            own = getattr(torch.SymBool, name)
            stack.enter_context(patch.object(torch.SymBool, name, functools.partialmethod(_alike, own, are_alike)))
        for kind, parts in _PARTS.items():
            for name, part in parts.items():
                if not hasattr(kind, name):
                    stack.enter_context(patch.object(kind, name, property(part), create=True))
        yield


def power(base: Any, exponent: Any) -> Any:
    """`math.pow` of numbers, of free sizes, and of data that stand for one number."""
    if torch.compiler.is_dynamo_compiling():  # a round of a loop, of which numbers are tensors
        made = _in_a_round(base) ** _in_a_round(exponent)
        return made.to(torch.get_default_dtype()) if isinstance(made, torch.Tensor) else made
    given = [_number(one) for one in (base, exponent)]
    if not any(isinstance(one, _SYMBOLIC) for one in given):
        return POW(*given)
    left, right = (torch.sym_float(one) for one in given)
    if isinstance(given[1], int) and not statically_known_true(left >= 0):
        return _product(left, given[1])
    if isinstance(given[1], torch.SymInt) and not isinstance(left, torch.SymFloat) and left < 0:
        return abs(left) ** right * (1 - 2 * (given[1] % 2))
    return left**right


def _product(base: Any, exponent: int) -> Any:
    """A power of what may be negative, of which torch has none."""
    made, square = 1.0, base
    for bit in reversed(f"{abs(exponent):b}"):
        made = made * square if bit == "1" else made
        square = square * square
    return made if exponent >= 0 else 1 / made


def _number(one: Any) -> Any:
    return one.item() if isinstance(one, torch.Tensor) else one


def _in_a_round(one: Any) -> Any:
    return one.to(torch.float64) if isinstance(one, torch.Tensor) else float(one)


def _rounded(size: Any, ndigits: Any = None) -> Any:
    """`round(size, ndigits)`, of which fewer digits than none make tens, hundreds and so on; halves go to even ones."""
    digits = 0 if ndigits is None else operator.index(ndigits)
    if digits >= 0:
        return size
    if -digits > _MOST_DIGITS:
        return size * 0
    unit = 10**-digits
    count, rest = size // unit, size % unit
    is_up = (2 * rest + count % 2 + unit - 1) // (2 * unit)  # 1 or 0: more than half, or half behind an odd number
    return (count + is_up) * unit


def _is_whole(fraction: torch.SymFloat) -> Any:
    """`fraction.is_integer()`, of which torch writes a graph that cannot be run."""
    return torch.sym_float(math.floor(fraction)) == fraction


def _alike(answer: torch.SymBool, own: Callable[..., Any], are_alike: bool, other: Any) -> Any:
    """`answer == other` or `answer != other`, which torch cannot tell of truth values.

    Args:
        answer: one about sizes.
        own: torch's method, which tells it of anything else.
        are_alike: whether it is asked if both are alike.
        other: what it is compared with.
    """
    if torch.compiler.is_dynamo_compiling():
        return own(answer, other)
    if type(other) in (int, float):  # a truth value is 1 or 0 to Python
        if other not in (0, 1):
            return not are_alike
        other = bool(other)
    if not isinstance(other, (bool, torch.SymBool)):
        return own(answer, other)
    differ = (answer & torch.sym_not(other)) | (torch.sym_not(answer) & other)
    return torch.sym_not(differ) if are_alike else differ
