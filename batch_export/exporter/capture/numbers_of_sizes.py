"""Tensors of one number that forward computes of sizes: what they are of these stays known while torch captures.

Nothing arrives. Leaves: a context in which such a tensor (`torch.div(x.size(1), 4, rounding_mode="trunc")`,
`torch.ceil((length - kernel) / stride)`) gives, where Python or an operator asks for its number, the function of the
sizes that it is. To torch it is data: no size is known that is made of it, and no comparison. The program computes the
number as forward does, in tensors.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_WHOLE = (torch.int32, torch.int64)
_FLOATS = (torch.float32, torch.float64)


def _reversed(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: function(other, one)


@dataclass(frozen=True, slots=True)
class _Fraction:
    """A fraction of two sizes, which becomes whole by whole numbers alone: torch simplifies these, and no floats."""

    over: Any
    under: Any

    @property
    def number(self) -> Any:
        """The fraction as torch has it."""
        return self.over / self.under

    def __add__(self, other: Any) -> _Fraction:
        return _Fraction(self.over + other * self.under, self.under) if _is_whole(other) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> _Fraction:
        return _Fraction(self.over - other * self.under, self.under) if _is_whole(other) else NotImplemented

    def __floor__(self) -> Any:
        return self.over // self.under

    def __ceil__(self) -> Any:
        return (self.over + self.under - 1) // self.under


def _divided(one: Any, other: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor" or (rounding_mode == "trunc" and _is_whole(one) and _is_whole(other)):
        if rounding_mode == "trunc" and not (one >= 0 and other > 0):
            return None
        return one // other
    if rounding_mode is None and _is_whole(one) and _is_whole(other) and statically_known_true(other > 0):
        return _Fraction(one, other)
    return one / other if rounding_mode is None else None


def _is_whole(number: object) -> bool:
    return isinstance(number, (int, torch.SymInt))


_BINARY: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge")},
    **{f"__{name}__": getattr(operator, name) for name in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge")},
    "__radd__": operator.add,
    "__rmul__": operator.mul,
    "__rsub__": _reversed(operator.sub),
    **dict.fromkeys(("div", "true_divide", "__truediv__", "__div__", "divide"), _divided),
    "__rtruediv__": _reversed(operator.truediv),
    **dict.fromkeys(("floor_divide", "__floordiv__"), operator.floordiv),
    "__rfloordiv__": _reversed(operator.floordiv),
    **dict.fromkeys(("maximum", "max"), torch.sym_max),
    **dict.fromkeys(("minimum", "min"), torch.sym_min),
}
_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "__neg__": operator.neg,
    "ceil": math.ceil,
    "floor": math.floor,
}
_EXACT = "_batch_export_number"
"""Where a tensor has its number, which torch may have as a float."""
_TRUTHS = frozenset({"__bool__", "is_nonzero"})
_SAME = frozenset({"to", "long", "int", "float", "double", "clone", "detach", "contiguous", "tensor", "scalar_tensor"})
"""What gives the same number in another dtype, cut off where that is whole."""


class _Numbers(TorchFunctionMode):
    """Works out what each tensor of one number is of sizes, beside torch."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Called by torch for every function of its own."""
        del types
        given = dict(kwargs or {})
        if isinstance(func, OpOverload):  # torch's own call, within one that forward makes
            return func(*args, **given)
        name = getattr(func, "__name__", "")
        if name in _TRUTHS and len(args) == 1 and isinstance(args[0], FakeTensor) and not args[0].dim():
            known = args[0].item_memo
            if isinstance(known, _SYMBOLIC) and known.node.has_hint():
                return bool(known)  # a guard on sizes
        numbers = [known_number(one) for one in args[:2]] if 0 < len(args) <= 2 else []
        result = func(*args, **given)
        if isinstance(result, FakeTensor) and result.dim() == 0 and result.dtype in (*_WHOLE, *_FLOATS, torch.bool):
            number = _made(name, numbers, given)
            if number is not None and result.constant is None and result.item_memo is None:
                _keep(result, number)
        return result


def known_number(given: Any) -> Any:
    """The number that an argument is as far as it is known; None where it is data, or no number."""
    if isinstance(given, FakeTensor):
        if given.dim() or given.dtype not in (*_WHOLE, *_FLOATS):
            return None
        if given.constant is not None:
            with _disable_current_modes():
                return given.constant.item()
        given = given.item_memo if given.item_memo is None else getattr(given, _EXACT, given.item_memo)
    if isinstance(given, _Fraction):
        return given
    if isinstance(given, _SYMBOLIC):
        return given if given.node.has_hint() else None
    return given if isinstance(given, (int, float)) and not isinstance(given, bool) else None


def _made(name: str, numbers: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """What comes of a function; None where that is not known, or no function of sizes."""
    if not numbers or numbers[0] is None:
        return None
    if name in _SAME and (len(numbers) == 1 or numbers[1] is None):
        return numbers[0]
    if len(numbers) == 1 and name in _UNARY and not given:
        return _UNARY[name](numbers[0]) if not _is_whole(numbers[0]) or name.strip("_") == "neg" else numbers[0]
    if len(numbers) == 1 or numbers[1] is None or name not in _BINARY or given.keys() - {"rounding_mode"}:
        return None
    if given and _BINARY[name] is not _divided:
        return None
    if name.strip("_") in ("eq", "ne"):  # which any two objects have
        return _BINARY[name](*map(_plain, numbers))
    try:
        return _BINARY[name](*numbers, **given)
    except TypeError:  # a fraction with another, or with a float
        return _BINARY[name](*map(_plain, numbers), **given)


def _plain(number: Any) -> Any:
    return number.number if isinstance(number, _Fraction) else number


def _keep(result: FakeTensor, exact: Any) -> None:
    number = _plain(exact)
    if not isinstance(number, _SYMBOLIC) or not number.node.has_hint():
        return
    if result.dtype in _WHOLE:
        exact = number = torch.sym_int(number)
    elif result.dtype in _FLOATS:
        number = torch.sym_float(number)
    if isinstance(number, torch.SymBool) == (result.dtype == torch.bool):
        result.item_memo = number  # torch forgets it when the tensor is written to
        setattr(result, _EXACT, exact)


def numbers_of_sizes() -> contextlib.AbstractContextManager[object]:
    """Within, tensors that are computed of sizes alone give functions of these."""
    return _Numbers()
