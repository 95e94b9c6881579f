"""During capture, numbers of which the sizes say whether they are whole: `max(n, 1.5)` is `n` itself, or the fraction.

Arrives: two numbers of which `max` or `min` gives one. Leaves: that one where sizes leave no choice; else a fraction,
which is the same beside fractions. Where a dtype would go by it (beside whole numbers, in a tensor of its own) it is
asked as Python asks which of the two it is, so that the answer is a limit of the program.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from batch_export.exporter.capture import extreme_elements
from batch_export.exporter.capture.calls_without_numbers import note_answer

_WHOLE, _FRACTIONS = (int, torch.SymInt), (float, torch.SymFloat)
_KEEPING = ("add", "sub", "mul", "floordiv", "mod", "pow", "radd", "rsub", "rmul", "rfloordiv", "rmod", "rpow")
"""Operators that give a whole number of whole ones."""
_TYPED = (
    *("fill_", "full_like", "new_full", "masked_fill", "masked_fill_", "index_fill", "index_fill_", "__setitem__"),
    *("linspace", "logspace", "scalar_tensor", "true_divide", "__truediv__", "__rtruediv__"),
    *("eq", "ne", "lt", "le", "gt", "ge", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
)
"""Functions of tensors whose dtype goes by no number."""

_MODES: Any = torch.overrides
_FREE = frozenset((torch.SymInt, torch.SymFloat))
_OF_NUMBERS = ("sym_", "_sym_", "_check")
"""What the names of functions begin with that give no tensor."""


class EitherKind(torch.SymFloat):
    """A number that is a whole one, or a fraction, of the same value.

    Args:
        value: it as a fraction.
        settled: asks for the number as Python has it.
    """

    def __init__(self, value: torch.SymFloat, settled: Callable[[], Any]) -> None:
        super().__init__(value.node)  # type: ignore[no-untyped-call]
        self.settled = settled
        if (watched := _WATCHED.get()) is not None:
            watched.look()

    def __neg__(self) -> Any:
        return EitherKind(-as_fraction(self), lambda: -self.settled())

    def __abs__(self) -> Any:
        return EitherKind(torch.sym_max(-as_fraction(self), as_fraction(self)), lambda: abs(self.settled()))


def _keeping(name: str) -> Callable[[EitherKind, Any], Any]:
    method = f"__{name}__"

    def keeping(self: EitherKind, other: Any) -> Any:
        made = getattr(torch.SymFloat, method)(self, other)
        is_either = isinstance(made, torch.SymFloat) and isinstance(other, (*_WHOLE, EitherKind))
        return EitherKind(made, lambda: _of_settled(name, self.settled(), settled(other))) if is_either else made

    return keeping


def _of_settled(name: str, one: Any, other: Any) -> Any:
    sides = (other, one) if name.startswith("r") else (one, other)
    return getattr(operator, name.removeprefix("r"))(*sides)


for _name in _KEEPING:
    setattr(EitherKind, f"__{_name}__", _keeping(_name))


def extreme(own: Callable[..., Any], torchs: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """`max` or `min`.

    Args:
        own: Python's function.
        torchs: the function that a capture has in its place.
        args, given: as for the function.
    """
    if len(args) == 1 and isinstance(args[0], GeneratorType):
        args = ([*args[0]],)
    for one in args:
        if type(one) in _FREE or isinstance(one, (EitherKind, list, tuple, torch.Tensor)):
            break
    else:
        return torchs(*args, **given)
    if torch.compiler.is_dynamo_compiling() and len(args) == 2 and not given and extreme_elements.are_alike(*args):
        return extreme_elements.of_elements(*args, is_most=own.__name__ == "max")
    if torch.compiler.is_dynamo_compiling() or given:
        return torchs(*args, **given)
    if (elements := extreme_elements.elements(args)) is not None:
        note_answer()  # it is one of them, to which something may be written
        return functools.reduce(
            functools.partial(extreme_elements.of_elements, is_most=own.__name__ == "max"), elements
        )
    numbers = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    if extreme_elements.are_read(numbers):
        return functools.reduce(functools.partial(extreme_elements.of_read, is_most=own.__name__ == "max"), numbers)
    if not _are_mixed(numbers):
        return torchs(*args)
    made = numbers[0]
    for one in numbers[1:]:
        made = _of_two(own, made, one)
    return made


def _are_mixed(args: Sequence[Any]) -> bool:
    is_free = any(isinstance(one, (torch.SymInt, torch.SymFloat)) for one in args)
    are_numbers = len(args) > 1 and all(isinstance(one, (*_WHOLE, *_FRACTIONS)) for one in args)
    if not is_free or not are_numbers:
        return False
    return any(map(_may_be_whole, args)) and any(isinstance(one, _FRACTIONS) for one in args)


def _may_be_whole(one: Any) -> bool:
    return isinstance(one, (*_WHOLE, EitherKind))


def _of_two(own: Callable[..., Any], one: Any, other: Any) -> Any:
    if not isinstance(one, (torch.SymInt, torch.SymFloat)) and not isinstance(other, (torch.SymInt, torch.SymFloat)):
        return own(one, other)
    is_most = own.__name__ == "max"
    sym: Callable[[Any, Any], Any] = torch.sym_max if is_most else torch.sym_min
    if not _are_mixed((one, other)):
        return sym(one, other)
    later, first = (operator.gt, operator.ge) if is_most else (operator.lt, operator.le)
    if _is_known(later, other, one):
        return other
    if _is_known(first, one, other):
        return one
    return EitherKind(sym(one, other), lambda: own(settled(one), settled(other)))


def _is_known(asked: Callable[[Any, Any], Any], one: Any, other: Any) -> bool:
    """Whether one number is on that side of the other at all sizes; every one is on one side of what is infinite."""
    for number, away in ((one, 0), (other, 0)):
        if isinstance(number, float) and math.isinf(number):
            sides = (number, away) if number is one else (away, number)
            return bool(asked(*sides))
    return statically_known_true(asked(one, other))


def settled(one: Any) -> Any:
    """A number as Python has it."""
    return one.settled() if isinstance(one, EitherKind) else one


def as_fraction(one: Any) -> Any:
    """`float(...)` of a number of sizes, of which the kind is known then."""
    return torch.SymFloat(one.node) if isinstance(one, EitherKind) else torch.sym_float(one)


def in_outputs(outputs: Any) -> Any:
    """What a model returns, of which each number has a kind of its own; None where all have."""
    if not any(isinstance(one, EitherKind) for one in pytree.tree_leaves(outputs)):
        return None
    return pytree.tree_map(settled, outputs)


class Settling(TorchFunctionMode):
    """Asks for the kind of a number where a function of torch's gives a dtype that goes by it."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> object:
        """Called by torch for every function of its own."""
        given = dict(kwargs or {})
        is_asked = not torch.compiler.is_dynamo_compiling() and (_holds_any(args) or _holds_any(given.values()))
        if is_asked and not _is_typed(func, pytree.tree_leaves((list(args), given)), given):
            args, given = pytree.tree_map(settled, (args, given))
        return func(*args, **given)


@contextlib.contextmanager
def settling_once_there_are_any() -> Iterator[None]:
    """Within, functions of torch ask for the kind of such numbers, before anybody else sees them.

    Looking at every call costs a tenth of a capture, so that nobody does until the first of them is made.
    """
    watched = _Watched(_MODES._len_torch_function_stack())
    token = _WATCHED.set(watched)
    try:
        yield
    finally:
        _WATCHED.reset(token)
        if watched.is_looked_at:
            _MODES._pop_mode()


@dataclass(slots=True)
class _Watched:
    """A capture.

    Attributes:
        depth: how many modes of torch's there were at its beginning.
        is_looked_at: whether functions ask by now.
    """

    depth: int
    is_looked_at: bool = False

    def look(self) -> None:
        """Has functions ask, below the modes that a model has opened meanwhile."""
        above = _MODES._len_torch_function_stack() - self.depth
        if self.is_looked_at or above < 0:  # within a mode
            return
        self.is_looked_at = True
        modes = [_MODES._pop_mode() for _ in range(above)]
        for mode in (Settling(), *reversed(modes)):
            _MODES._push_mode(mode)


_WATCHED: ContextVar[_Watched | None] = ContextVar("_WATCHED", default=None)


def _holds_any(given: Iterable[Any]) -> bool:
    return any(isinstance(one, EitherKind) or (isinstance(one, (list, tuple)) and _holds_any(one)) for one in given)


def goes_by_no_number(name: str) -> bool:
    """Whether the dtype of what a function of torch's of that name gives is that of its tensors."""
    return name in _TYPED or name.startswith(_OF_NUMBERS)


def _is_typed(function: Callable[..., Any], leaves: Sequence[Any], given: Mapping[str, Any]) -> bool:
    name = getattr(function, "__name__", "")
    if given.get("dtype") is not None or goes_by_no_number(name):
        return True
    if name in ("div", "divide", "div_", "divide_") and given.get("rounding_mode") is None:
        return True
    tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
    if tensors:
        return any(one.is_floating_point() or one.is_complex() for one in tensors)
    return any(isinstance(one, _FRACTIONS) and not isinstance(one, EitherKind) for one in leaves)
