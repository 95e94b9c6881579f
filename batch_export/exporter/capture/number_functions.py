"""Numbers of all steps at once, in the precision in which Python computes each of them.

Arrives: what the code of `number_lists.py` does with the steps of a list. Leaves: one tensor of float64, int64 or truth
values in the place of each number. What is no arithmetic and no function here is refused.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from batch_export.exporter.capture import python_numbers
from batch_export.exporter.capture.free_sequences import length_of

DOUBLE, WHOLE = torch.float64, torch.int64


class UnknownNumberError(Exception):
    """An element is made of something that is not followed here."""


class StepNumber:
    """A number of each step.

    Args:
        numbers: them, as float64, int64 or bool.
        is_positive: whether none of them is below 0.
        is_exact: whether every runtime has the same digits, so that they may be rounded and compared.
    """

    __array_ufunc__ = None  # NumPy computes with none of them

    def __init__(self, numbers: Tensor, is_positive: bool = False, is_exact: bool = True) -> None:
        self.numbers = numbers
        self.is_positive = is_positive
        self.is_exact = is_exact

    def _refused(self, *_: object) -> Any:
        raise UnknownNumberError

    __bool__ = __int__ = __float__ = __index__ = __complex__ = __round__ = __iter__ = __len__ = _refused
    __hash__ = None  # type: ignore[assignment]

    def _whole(self, function: Callable[..., Tensor], other: Any, *, turned: bool = False) -> StepNumber:
        sides, are_exact = _alike(self, other), _are_exact(self, other)
        if function in (_floored, _left) and not are_exact:
            raise UnknownNumberError
        are_positive = self.is_positive and _is_positive(other) and function is not torch.sub
        return StepNumber(function(*(sides[::-1] if turned else sides)), are_positive, are_exact)

    def __add__(self, other: Any) -> StepNumber:
        return self._whole(torch.add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> StepNumber:
        return self._whole(torch.sub, other)

    def __rsub__(self, other: Any) -> StepNumber:
        return self._whole(torch.sub, other, turned=True)

    def __mul__(self, other: Any) -> StepNumber:
        return self._whole(torch.mul, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> StepNumber:
        return self._whole(_divided, other)

    def __rtruediv__(self, other: Any) -> StepNumber:
        return self._whole(_divided, other, turned=True)

    def __floordiv__(self, other: Any) -> StepNumber:
        return self._whole(_floored, other)

    def __rfloordiv__(self, other: Any) -> StepNumber:
        return self._whole(_floored, other, turned=True)

    def __mod__(self, other: Any) -> StepNumber:
        return self._whole(_left, other)

    def __rmod__(self, other: Any) -> StepNumber:
        return self._whole(_left, other, turned=True)

    def __pow__(self, other: Any) -> StepNumber:
        return _power(self, other)

    def __rpow__(self, other: Any) -> StepNumber:
        return _power(other, self)

    def __neg__(self) -> StepNumber:
        return StepNumber(-_counted(self), is_exact=self.is_exact)

    def __pos__(self) -> StepNumber:
        return StepNumber(_counted(self), self.is_positive, self.is_exact)

    def __abs__(self) -> StepNumber:
        return StepNumber(_counted(self).abs(), is_positive=True, is_exact=self.is_exact)

    def _compared(self, function: Callable[..., Any], other: Any) -> Any:
        if not _are_exact(self, other):
            raise UnknownNumberError
        return StepNumber(function(*_alike(self, other)), is_positive=True)

    def __eq__(self, other: object) -> Any:
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compared(operator.ne, other)

    def __lt__(self, other: Any) -> Any:
        return self._compared(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._compared(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(operator.ge, other)


def _is_positive(one: Any) -> bool:
    if isinstance(one, StepNumber):
        return one.is_positive
    return type(one) in (int, float, bool) and one >= 0


def _are_exact(*given: Any) -> bool:
    """Whether numbers have the same digits everywhere, as those made by `+`, `/` and the like of whole ones have."""
    of_steps = all(one.is_exact for one in given if isinstance(one, StepNumber))
    return of_steps and not any(isinstance(one, torch.SymFloat) and free_unbacked_symbols(one) for one in given)


def numbers_of(one: Any) -> Tensor:
    """A number as a tensor in the precision in which Python has it."""
    if isinstance(one, StepNumber):
        return one.numbers
    number: Any = one
    if type(one) is bool:
        return torch.scalar_tensor(number, dtype=torch.bool)
    if isinstance(one, (int, torch.SymInt)):
        if isinstance(one, int) and abs(one) >= 2**63:
            raise UnknownNumberError
        return torch.scalar_tensor(number, dtype=WHOLE)
    if isinstance(one, (float, torch.SymFloat)):
        return torch.scalar_tensor(number, dtype=DOUBLE)
    raise UnknownNumberError


def _counted(one: Any) -> Tensor:
    """The same with truth values as 0 and 1."""
    numbers = numbers_of(one)
    return numbers.to(WHOLE) if numbers.dtype is torch.bool else numbers


def _alike(*given: Any) -> list[Tensor]:
    """Numbers in one dtype."""
    numbers = [_counted(one) for one in given]
    dtype = DOUBLE if any(one.dtype is DOUBLE for one in numbers) else WHOLE
    return [one.to(dtype) for one in numbers]


def _divided(one: Tensor, other: Tensor) -> Tensor:
    return one.to(DOUBLE) / other.to(DOUBLE)


def _divisor(one: Tensor) -> Tensor:
    """Whole numbers with 1 for 0, which ends a process; Python raises there, or the number is not taken."""
    return torch.where(one == 0, 1, one) if one.dtype is WHOLE else one


def _floored(one: Tensor, other: Tensor) -> Tensor:
    return torch.floor_divide(one, _divisor(other))


def _left(one: Tensor, other: Tensor) -> Tensor:
    return torch.remainder(one, _divisor(other))


def _power(base: Any, exponent: Any) -> StepNumber:
    """A power; of what may be negative only by a whole number, and of a whole number only by one that is known."""
    is_whole = [_counted(one).dtype is WHOLE for one in (base, exponent)]
    if all(is_whole):
        if type(exponent) is not int or not 0 <= exponent <= 4:
            raise UnknownNumberError
        return StepNumber(_counted(base).pow(exponent), _is_positive(base) or exponent % 2 == 0, _are_exact(base))
    if not is_whole[1] and not _is_positive(base):
        raise UnknownNumberError
    made = torch.pow(_counted(base).to(DOUBLE), _counted(exponent).to(DOUBLE))
    return StepNumber(made, _is_positive(base), is_exact=False)


def _logarithm(number: Tensor, *base: Tensor) -> Tensor:
    return number.log() / base[0].log() if base else number.log()


_OF_DOUBLES: Mapping[Any, Callable[..., Tensor]] = {
    **{getattr(math, name): getattr(torch, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp")},
    **{getattr(math, name): getattr(torch, name) for name in ("sqrt", "log2", "log10", "asin", "acos", "atan")},
    **{getattr(math, name): getattr(torch, name) for name in ("erf", "expm1", "log1p", "atan2")},
    math.fabs: torch.abs,
    math.radians: torch.deg2rad,
    math.degrees: torch.rad2deg,
}
"""Functions of Python's that give a fraction."""
_EXACT = (math.sqrt, math.fabs)
"""Those whose digits are the same everywhere."""
_ROUNDING: Mapping[Any, Callable[[Tensor], Tensor]] = {
    math.floor: torch.floor,
    math.ceil: torch.ceil,
    math.trunc: torch.trunc,
    builtins.int: torch.trunc,
    builtins.round: torch.round,
}
"""Functions that give a whole number."""
_LOG = math.log
_PURE = (*(builtins.abs, builtins.bool, builtins.float, builtins.int), *(builtins.len, builtins.pow, builtins.round))
_POWERS = (python_numbers.POW, python_numbers.power)
_OF_SIZES = ("size", "dim", "numel")
"""Methods of tensors that give sizes."""
AT_ONCE: ContextVar[bool] = ContextVar("AT_ONCE", default=False)
"""Whether an element is that of all steps."""


def called(function: Callable[..., Any], *args: Any) -> Any:
    """What a function gives of numbers, of which some may be those of all steps."""
    own = getattr(function, "__wrapped__", function)
    if not any(isinstance(one, StepNumber) for one in args):
        if AT_ONCE.get() and not _is_pure(own):
            raise UnknownNumberError  # what has a state is called for each step
        return _of_sizes(own, args) if len(args) == 1 else function(*args)
    numbers = [_counted(one) for one in args]
    are_exact, are_positive = _are_exact(*args), all(map(_is_positive, args))
    if own in _OF_DOUBLES:
        made = _OF_DOUBLES[own](*(one.to(DOUBLE) for one in numbers))
        return StepNumber(made, are_positive and own in _EXACT, are_exact and own in _EXACT)
    if own is _LOG:
        return StepNumber(_logarithm(*(one.to(DOUBLE) for one in numbers)), is_exact=False)
    if own in _POWERS:
        return _power(
            *(StepNumber(one.to(DOUBLE), _is_positive(given)) for one, given in zip(numbers, args, strict=True))
        )
    if own in (builtins.min, builtins.max) and len(args) > 1:
        return StepNumber(
            _extreme(torch.minimum if own is builtins.min else torch.maximum, numbers), are_positive, are_exact
        )
    (number,) = numbers if len(numbers) == 1 else (None,)
    if number is None or not isinstance(args[0], StepNumber):
        raise UnknownNumberError
    if own is builtins.abs:
        return abs(args[0])
    if own is builtins.float:
        return StepNumber(number.to(DOUBLE), are_positive, are_exact)
    if not are_exact:
        raise UnknownNumberError  # where it is next to a whole number a runtime may be on its other side
    if own in _ROUNDING:
        return StepNumber(number if number.dtype is WHOLE else _ROUNDING[own](number).to(WHOLE), are_positive)
    if own is builtins.bool:
        return StepNumber(number != 0, is_positive=True)
    raise UnknownNumberError


def _of_sizes(function: Any, args: tuple[Any]) -> Any:
    """What a function gives of one number, which may be a free size."""
    (one,) = args
    if function is builtins.len:
        length = length_of(one)
        return builtins.len(one) if length is None else length
    if isinstance(one, (torch.SymInt, torch.SymFloat)) and function in (builtins.int, builtins.float):
        return torch.sym_int(one) if function is builtins.int else torch.sym_float(one)
    return function(one)


def _is_pure(function: Any) -> bool:
    """Whether a function does nothing but give a number of what it is called with."""
    is_of_tensor = isinstance(getattr(function, "__self__", None), Tensor)
    if (is_of_tensor and function.__name__ in _OF_SIZES) or getattr(function, "__module__", "") == "math":
        return True
    return function in (*_PURE, *_POWERS, builtins.min, builtins.max)  # torch replaces two of them meanwhile


def _extreme(function: Callable[[Tensor, Tensor], Tensor], numbers: Sequence[Tensor]) -> Tensor:
    """The least or the largest number, where all are whole or none is: Python gives one of them as it is."""
    if len({one.dtype for one in numbers}) > 1:
        raise UnknownNumberError
    return functools.reduce(function, numbers)


def chosen(test: Any, body: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    """A choice by a number of each step; Python's own by any other."""
    if not isinstance(test, StepNumber):
        return body() if test else orelse()
    sides = body(), orelse()
    numbers = [numbers_of(one) for one in sides]
    if len({one.dtype for one in numbers}) > 1:
        raise UnknownNumberError  # the kind of the list goes by which of them are in it
    made = torch.where(_counted(test) != 0, numbers[0], numbers[1])
    return StepNumber(made, all(map(_is_positive, sides)), _are_exact(*sides))
