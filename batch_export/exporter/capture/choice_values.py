"""What the code calls that `data_choices.py` writes: values of which data say which of the two it is.

Arrives: what an `if` asks, and what both sides give a name. Leaves: the value of the side that holds. Tensors of one
shape and dtype are chosen element by element; a number beside a tensor is one of its dtype.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.choice_effects import AS_PART, PART
from batch_export.exporter.capture.data_rounds import NUMBER
from batch_export.exporter.capture.forced_decisions import OneWayOnlyError
from batch_export.exporter.capture.guard_sources import is_users

BY_DATA, CHOSEN, AUGMENTED, WRITTEN, APART, READ, DIVIDED, COMPUTED = (
    f"__{name}_in_a_choice__"
    for name in ("by_data", "chosen", "augmented", "written", "apart", "read", "divided", "computed")
)
SHARED: ContextVar[list[str]] = ContextVar("SHARED")
"""What holds values that may share memory with others, where a choice is a copy."""
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": operator.pow,
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
}
"""Operators as Python's grammar calls them."""
_DIVISIONS = ("FloorDiv", "Mod")


def _by_data(asked: Any) -> bool:
    return isinstance(asked, Tensor)


def _chosen(asked: Tensor, one: Any, other: Any, kinds: Sequence[str], is_fresh: bool) -> Any:
    """One of two values.

    Args:
        asked: whether it is the first.
        one, other: the values.
        kinds: of the numbers in whose place a tensor may stand: what the function does with it gives the same.
        is_fresh: whether both have memory of their own, of which a choice may be a copy.
    """
    if one is other or _are_same(one, other):
        return one
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return tuple(_chosen(asked, *two, kinds, is_fresh) for two in zip(one, other, strict=True))
    numbers = [value for value in (one, other) if _is_number(value)]
    if any(_kind(value) not in kinds for value in numbers):
        raise OneWayOnlyError("an `if` gives a name one of two numbers, as the data decide")
    first, second = _like(one, other), _like(other, one)
    if first.shape != second.shape or first.dtype != second.dtype:
        raise OneWayOnlyError("an `if` gives a name tensors of two shapes or dtypes, as the data decide")
    made = torch.where(asked.reshape(()).to(torch.bool), first, second)
    if len(numbers) < 2 and not is_fresh:
        _note("a name")
    if len(numbers) == 2:
        setattr(made, NUMBER, True)
    return made


def _note(what: str) -> None:
    """Notes what may share memory; dynamo comes behind a trial in which that was noted."""
    if not torch.compiler.is_dynamo_compiling():
        SHARED.get().append(what)


def _kind(number: Any) -> str:
    if not isinstance(number, Tensor):
        return type(number).__name__
    return "bool" if number.dtype is torch.bool else "float" if number.is_floating_point() else "int"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or getattr(value, NUMBER, False)


def _are_same(one: Any, other: Any) -> bool:
    """Whether two values are the same number, text or nothing, -0.0 and 0.0 apart."""
    is_plain = type(one) is type(other) and isinstance(one, (bool, int, float, str, type(None)))
    return is_plain and one == other and repr(one) == repr(other)


def _like(one: Any, other: Any) -> Tensor:
    """A value as a tensor; a number as one of the dtype of the tensor beside it, which is of its kind."""
    if isinstance(one, Tensor):
        return one
    if isinstance(one, bool) and (isinstance(other, bool) or _is_truth(other)):
        return torch.full((), one, dtype=torch.bool)
    if isinstance(one, (int, float)) and not isinstance(one, bool):
        if isinstance(other, Tensor) and not other.dim() and _is_of_kind(one, other):
            return torch.full((), one, dtype=other.dtype, device=other.device)
        if type(other) is type(one):
            return torch.full((), one, dtype=torch.int64 if isinstance(one, int) else torch.float64)
    raise OneWayOnlyError(f"an `if` gives a name a {type(one).__name__} or something else, as the data decide")


def _is_truth(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.bool and not value.dim()


def _is_of_kind(number: float, tensor: Tensor) -> bool:
    """Whether a tensor's dtype has the number as it is."""
    if tensor.is_floating_point():
        return float(torch.tensor(number, dtype=tensor.dtype)) == number
    return isinstance(number, int) and tensor.dtype is torch.int64


def _augmented(kind: str, value: Any, other: Any) -> Any:
    """What `value += other` holds, of which nothing is written to."""
    if kind not in _OPERATORS:
        raise OneWayOnlyError("an `if` on data changes something by an operator that is not followed")
    made = _divided(kind, value, other) if kind in _DIVISIONS else _OPERATORS[kind](value, other)
    if _is_number(value) and _is_number(other) and isinstance(made, Tensor):
        setattr(made, NUMBER, True)
    if not isinstance(value, Tensor) or getattr(value, NUMBER, False):
        return made
    if made.shape != value.shape:
        raise OneWayOnlyError("an `if` on data writes to a tensor of another shape")
    return made.to(value.dtype)


def _divided(kind: str, value: Any, other: Any) -> Any:
    """A quotient or a remainder: where the side does not hold, whole numbers may be divided by 0, which is by 1."""
    if isinstance(other, Tensor) and not other.is_floating_point():
        other = torch.where(other == 0, torch.ones_like(other), other)
    return _OPERATORS[kind](value, other)


def _read(whole: Any, *index: Any) -> Any:
    """What stands at a place, which may lie outside where the side does not hold: it is the nearest that is there."""
    if not isinstance(whole, Tensor) or not any(isinstance(one, Tensor) for one in index):
        return whole[index if len(index) > 1 else index[0]]
    if any(one is ... for one in index):
        raise OneWayOnlyError("an `if` on data reads a tensor by another one behind `...`")
    places, axis = [], 0
    for one in index:
        if isinstance(one, Tensor) and (one.dtype is torch.bool or one.is_floating_point()):
            raise OneWayOnlyError("an `if` on data reads a tensor by a mask")
        size = whole.shape[axis] if one is not None else 0
        places.append(one.clamp(min=-size, max=size - 1) if isinstance(one, Tensor) else one)
        axis += one is not None
    return whole[tuple(places)]


def _written(before: Any, after: Any) -> Any:
    """What stands for the name behind the `if`: a tensor itself, which has got the new numbers."""
    if not isinstance(before, Tensor) or getattr(before, NUMBER, False):
        return after
    return before.copy_(after)


def _part(value: Any, *index: Any) -> Any:
    """What stands at a place, whatever is written there later; data may say a place that is not there."""
    if any(isinstance(one, Tensor) for one in index):
        raise OneWayOnlyError("an `if` on data writes to a place that the data say")
    return value.clone() if isinstance(value, Tensor) else value


def _as_part(whole: Any, before: Any, value: Any) -> Any:
    """A value as it would stand at a place: of a tensor with the shape and dtype that it has there."""
    if not isinstance(whole, Tensor):
        _note("an element of a list or a dict")
        return value
    made = value if isinstance(value, Tensor) else torch.full((), value, dtype=before.dtype, device=before.device)
    return made.to(before.dtype).expand(before.shape)


def _apart(written: Sequence[Any], read: Sequence[Any]) -> None:
    """Ends a capture in which a side reads what it writes to under another name."""
    if torch.compiler.is_dynamo_compiling():  # behind a trial in which it was looked at
        return
    memory = [each for one in written for each in _memory(one)]
    others = [each for one in read for each in (*_memory(one), *_memory_within(one))]
    if len({*memory}) < len(memory) or not {*memory}.isdisjoint(others):
        raise OneWayOnlyError("an `if` on data writes to something that it reads or writes under another name")


def _computed(called: Sequence[tuple[Any, str]]) -> None:
    """Ends a capture in which a side calls something of the model's own, which may do more than compute.

    Args:
        called: what methods and functions are called of, with their names; of a name alone, itself.
    """
    if torch.compiler.is_dynamo_compiling():  # behind a trial in which it was looked at
        return
    for of, name in called:
        function = getattr(of, name, None) if isinstance(of, ModuleType) else of if not name else None
        inner = getattr(function, "__wrapped__", function)
        is_own = isinstance(inner, FunctionType) and is_users(inner.__code__.co_filename)
        is_known = isinstance(of, (Tensor, ModuleType, *_NUMBERS)) or not name or _is_of_tensors(of)
        if is_own or not is_known or isinstance(function, torch.nn.Module):
            raise OneWayOnlyError("an `if` on data calls something of the model's own, which may do more than compute")


_NUMBERS = (bool, int, float, torch.SymInt, torch.SymFloat, torch.Size)


def _is_of_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict)) and all(
        isinstance(one, (Tensor, *_NUMBERS)) for one in pytree.tree_leaves(value)
    )


def _memory(value: Any) -> list[object]:
    """What tells whether something is written to: a tensor's storage, a list or a dict itself."""
    if isinstance(value, Tensor):
        return [value.untyped_storage()._cdata]
    if isinstance(value, (list, dict)):
        return [("a list", id(value))]
    if isinstance(value, torch.nn.Module):
        return [each for one in (*value.parameters(), *value.buffers()) for each in _memory(one)]
    if value is None or isinstance(value, _KNOWN) or callable(value):
        return []
    raise OneWayOnlyError(f"an `if` on data writes to something beside a {type(value).__name__}, which may hold it")


_KNOWN = (
    *(bool, int, float, complex, str, tuple, torch.Size, torch.dtype, torch.device, torch.SymInt, torch.SymFloat),
    *(ModuleType, slice, range),
)
"""Of which nothing is a list, or holds tensors that are not looked at."""


def _memory_within(value: Any) -> list[object]:
    """The same of tensors in lists, tuples and dicts."""
    if not isinstance(value, (list, tuple, dict)):
        return []
    return [each for one in pytree.tree_leaves(value) if isinstance(one, Tensor) for each in _memory(one)]


CALLED: Mapping[str, Callable[..., Any]] = {
    BY_DATA: _by_data,
    CHOSEN: _chosen,
    AUGMENTED: _augmented,
    WRITTEN: _written,
    APART: _apart,
    READ: _read,
    DIVIDED: _divided,
    COMPUTED: _computed,
    PART: _part,
    AS_PART: _as_part,
}
"""What it calls, by name."""
