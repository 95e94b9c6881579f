"""During capture, numbers of which the sizes say whether they are whole: `max(n, 1.5)` is `n` itself, or the fraction.

Arrives: two numbers of which `max` or `min` gives one. Leaves: that one where sizes leave no choice; else a fraction,
which is the same beside fractions. Where a dtype would go by it (beside whole numbers, in a tensor of its own) it is
asked as Python asks which of the two it is, so that the answer is a limit of the program.
"""

from __future__ import annotations

import builtins
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

from batch_export.exporter.capture.calls_without_numbers import note_answer
from batch_export.exporter.capture.guard_sources import running_line

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
    if torch.compiler.is_dynamo_compiling() and len(args) == _TWO and not given and _are_alike(*args):
        return _of_elements(*args, is_most=own is _MAX)
    if torch.compiler.is_dynamo_compiling() or given:
        return torchs(*args, **given)
    if (elements := _elements(args)) is not None:
        note_answer()  # it is one of them, to which something may be written
        return functools.reduce(functools.partial(_of_elements, is_most=own.__name__ == "max"), elements)
    numbers = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
    if _are_read(numbers):
        return functools.reduce(functools.partial(_of_read, is_most=own.__name__ == "max"), numbers)
    if not _are_mixed(numbers):
        return torchs(*args)
    made = numbers[0]
    for one in numbers[1:]:
        made = _of_two(own, made, one)
    return made


def _are_alike(one: Any, other: Any) -> bool:
    """Whether both are tensors of one element of one dtype, or one of them is a number that such a tensor may have."""
    both = (one, other)
    tensors = [each for each in both if isinstance(each, torch.Tensor)]
    if not tensors or any(each.dim() or each.dtype != tensors[0].dtype for each in tensors):
        return False
    kinds = (int, float) if tensors[0].is_floating_point() else (int,)
    return all(isinstance(each, torch.Tensor) or type(each) in kinds for each in both)


def _elements(args: Sequence[Any]) -> Sequence[torch.Tensor] | None:
    """Tensors of one element each, and numbers as such, of which one is given; None for anything else."""
    several: Any = args
    if len(args) == 1:
        (several,) = args
        if isinstance(several, torch.Tensor):
            several = several.unbind() if several.dim() == 1 and isinstance(several.shape[0], int) else ()
    if not isinstance(several, (list, tuple)) or len(several) < _TWO:
        return None
    tensors = [one for one in several if isinstance(one, torch.Tensor)]
    if not tensors or not all(_is_element(one) for one in tensors):
        return None
    first = tensors[0]
    if any(one.dtype != first.dtype or one.shape != first.shape for one in tensors):
        raise OtherKindsError(running_line())
    made = [_element(one, first) for one in several]
    return [one for one in made if one is not None] if all(one is not None for one in made) else None


class OtherKindsError(Exception):
    """Tensors of which data say which one is given are of several dtypes or shapes, where a program has one.

    Attributes:
        source: `file:line` in the model.
    """

    def __init__(self, source: str) -> None:
        super().__init__(
            "Python's max or min of tensors of several dtypes or shapes gives one of them, as the data say"
        )
        self.source = source


def _is_element(one: torch.Tensor) -> bool:
    return all(isinstance(size, int) and size == 1 for size in one.shape)


_TWO, _MAX = 2, builtins.max


def _element(one: Any, like: torch.Tensor) -> torch.Tensor | None:
    """A tensor, or a number as one of the same dtype and shape, where it is no other number then."""
    dtype = like.dtype
    if isinstance(one, torch.Tensor):
        return one
    if type(one) not in (int, float) or not (dtype.is_floating_point or (type(one) is int and dtype is not torch.bool)):
        return None
    if dtype.is_floating_point:
        is_same = dtype.itemsize > _HALF or float(torch.tensor(one, dtype=dtype)) == one
    else:
        is_same = torch.iinfo(dtype).min <= one <= torch.iinfo(dtype).max
    return torch.full(like.shape, one, dtype=dtype) if is_same else None


_HALF = 2


def _of_elements(one: Any, other: Any, *, is_most: bool) -> torch.Tensor:
    """As Python compares: the first one stays where the other is NaN, or it is."""
    return torch.where(other > one if is_most else other < one, other, one)


def _are_read(numbers: Sequence[Any]) -> bool:
    """Whether there are fractions that were read of data, of which any may be NaN, and other fractions."""
    are_fractions = len(numbers) > 1 and all(type(one) in _FRACTIONS for one in numbers)
    return are_fractions and any(isinstance(one, torch.SymFloat) and not one.node.has_hint() for one in numbers)


def _of_read(one: Any, other: Any, *, is_most: bool) -> Any:
    """The same of such fractions."""
    sides = [torch.scalar_tensor(each, dtype=torch.float64) for each in (one, other)]
    return _of_elements(*sides, is_most=is_most).item()


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
