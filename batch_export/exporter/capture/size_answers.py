"""Answers to questions on sizes as tensors: what the code calls that `size_decisions.py` writes.

Arrives: what is compared while a capture runs. Leaves: a tensor that holds the answer where it hangs on free sizes, so
that Python's `if` asks the data; plain answers stay. The same question is one tensor, and one decision.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import sympy
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.fx.experimental.symbolic_shapes import statically_known_true

from batch_export.exporter.capture import size_conditions
from batch_export.exporter.capture.forced_decisions import OneWayOnlyError
from batch_export.exporter.capture.operators_of_sizes import by_what_is_not_zero
from batch_export.exporter.capture.size_questions import named_question

COMPARED, NOT, TRUTH, ALL, ANY, ALL_OF, ANY_OF, NUMBER, ONCE, LAST, FIRST, FLAG, IDENTICAL, MATCHED = (
    f"__{name}_by_sizes__"
    for name in (
        "compared",
        "not",
        "truth",
        "all",
        "any",
        "all_of",
        "any_of",
        "number",
        "once",
        "last",
        "first",
        "flag",
        "identical",
        "matched",
    )
)
KINDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
}
"""Comparisons as Python's grammar calls them."""


def _compared(left: Any, kind: str, right: Any) -> Any:
    sides = [left, right]
    if kind in ("Eq", "NotEq") and all(isinstance(one, tuple) for one in sides):
        alike = len(left) == len(right) and _joined(
            (functools.partial(_compared, one, "Eq", other) for one, other in zip(left, right, strict=True)),
            until=False,
        )
        return alike if kind == "Eq" else _not(alike)
    if any(isinstance(one, torch.SymBool) for one in sides):
        return _truth(KINDS[kind](*sides))
    is_of_sizes = any(isinstance(one, (torch.SymInt, torch.SymFloat)) for one in sides)
    if is_of_sizes and all(isinstance(one, (int, float, torch.SymInt, torch.SymFloat)) for one in sides):
        is_whole = all(isinstance(one, (int, torch.SymInt)) for one in sides)
        dtype = torch.int64 if is_whole else torch.float64
        if torch.compiler.is_dynamo_compiling():  # which reads no memory of other graphs
            return KINDS[kind](*[_tensor(one, dtype) for one in sides])
        condition = size_conditions.compared(left, kind, right)
        if condition in (sympy.true, sympy.false):
            return bool(condition)
        asked, key = _asked_before(), (kind, *(str(one) for one in sides))
        if key not in asked:
            asked[key] = _of_sizes(asked, KINDS[kind](*[_tensor(one, dtype) for one in sides]), condition)
        return asked[key]
    return KINDS[kind](*sides)


def _once(answer: Any) -> Any:
    """An answer to what was asked of sizes as the truth value that it was when it was asked for first.

    What the model computes of its data may be written to between two questions.
    """
    if not isinstance(answer, Tensor) or torch.compiler.is_dynamo_compiling():
        return answer
    asked, key = _asked_before(), ("once", id(answer))
    if ("of sizes", id(answer)) not in asked:
        return answer
    if key not in asked:
        asked[key] = answer.item()
        size_conditions.note(asked[key], asked["condition", id(answer)])
    return asked[key]


def _of_sizes(asked: dict[Any, Any], answer: Tensor, condition: sympy.Basic | None) -> Tensor:
    """An answer to what was asked of sizes, with what that was; it lives on, so that its place stays its own."""
    asked["of sizes", id(answer)], asked["condition", id(answer)] = answer, condition
    return answer


def _asked_before() -> dict[Any, Any]:
    """What was asked of sizes in the graph that is being recorded: the same question is one decision."""
    mode = get_proxy_mode()
    if mode is None:
        return {}
    return _ASKED.setdefault(mode.tracer, {})


KEPT = range(-5, 257)
"""Numbers of which Python has one object each."""
_ASKED: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()


def _tensor(size: Any, dtype: torch.dtype) -> Tensor:
    return torch.full((), size, dtype=dtype)  # a scalar tensor is known as a number (`numbers_of_sizes.py`)


def _number(value: Any) -> Any:
    """`int(value)` of a truth value, which is a number that the data say where sizes decide; a mask as it is."""
    if isinstance(value, Tensor):
        return value if value.dim() else value.to(torch.int64).item()
    return int(value)


def _flag(answer: Any) -> Any:
    """An argument that may be an answer: what was asked of sizes is decided, anything else stays what it is."""
    if not isinstance(answer, Tensor) or torch.compiler.is_dynamo_compiling():
        return answer
    return bool(_once(answer)) if ("of sizes", id(answer)) in _asked_before() else answer


def _identical(value: Any, to: Any, are_one: bool) -> Any:
    """`value is True` and its like, where an answer about free sizes, or a size, is what it will be.

    What torch has in the place of a module while it captures is another object each time that it is read.
    """
    if torch.compiler.is_dynamo_compiling():  # which says that it is a bool, and that `is True` is false of it
        if isinstance(to, bool) and isinstance(value, bool):
            return value if to is are_one else not value
        return (value is to) is are_one
    if value is to:
        return are_one
    sides = [value, to]
    if any(isinstance(one, torch.SymBool) or _is_answer(one) for one in sides):
        if not all(isinstance(one, (bool, torch.SymBool)) or _is_answer(one) for one in sides):
            return not are_one
        for one, other in (sides, sides[::-1]):
            if isinstance(other, bool):
                return one if other is are_one else _not(one) if isinstance(one, Tensor) else torch.sym_not(one)
        differ = value != to
        return _opposite(differ) if are_one else differ
    if any(isinstance(one, torch.SymInt) for one in sides) and all(type(one) in (int, torch.SymInt) for one in sides):
        differ = value != to  # Python keeps one object of each small number, and makes others anew
        is_small = any(type(one) is int and one in KEPT for one in sides)
        for far in () if is_small else (value > KEPT[-1], value < KEPT[0]):
            differ = far if differ is False else differ if far is False else True if far is True else differ | far
        return _opposite(differ) if are_one else differ
    if all(isinstance(one, torch.nn.Module) for one in sides):
        return (vars(value) is vars(to)) is are_one
    return not are_one


def _is_answer(one: Any) -> bool:
    return isinstance(one, Tensor) and ("of sizes", id(one)) in _asked_before()


def _opposite(answer: Any) -> Any:
    if isinstance(answer, bool):
        return not answer
    return ~answer if isinstance(answer, Tensor) else torch.sym_not(answer)


def _matched(value: Any) -> Any:
    """What a `match` is given, in which answers about free sizes are decided."""
    if torch.compiler.is_dynamo_compiling():
        return value
    if type(value) in (tuple, list):
        return type(value)(map(_matched, value))
    if type(value) is dict:
        return {key: _matched(one) for key, one in value.items()}
    if isinstance(value, Tensor) and ("of sizes", id(value)) in _asked_before():
        return bool(_once(value))
    return bool(value) if isinstance(value, torch.SymBool) else value


def _truth(value: Any) -> Any:
    if isinstance(value, torch.SymBool) and not _is_decided(value) and (named := named_question(value)) is not None:
        return _compared(named.left, named.kind.__name__, named.right)
    return _compared(value, "NotEq", 0) if isinstance(value, torch.SymInt) else value


def _is_decided(value: torch.SymBool) -> bool:
    """Whether the capture has taken a side on it, as Python's `a and b` does on the way to its value."""
    return statically_known_true(value) or statically_known_true(torch.sym_not(value))


def _not(value: Any) -> Any:
    if not isinstance(value, Tensor) or value.dtype is not torch.bool:
        return not value
    asked = {} if torch.compiler.is_dynamo_compiling() else _asked_before()
    if ("of sizes", id(value)) not in asked:
        return ~value
    key = ("not", id(value))
    if key not in asked:
        condition = asked["condition", id(value)]
        asked[key] = _of_sizes(asked, ~value, None if condition is None else sympy.Not(condition))
    return asked[key]


def _all(*parts: Callable[[], Any]) -> Any:
    return _joined(parts, until=False)


def _any(*parts: Callable[[], Any]) -> Any:
    return _joined(parts, until=True)


def _both(joined: Callable[[Tensor, Tensor], Tensor], one: Tensor, other: Tensor) -> Tensor:
    if torch.compiler.is_dynamo_compiling():
        return joined(one, other)
    asked, key = _asked_before(), (joined, id(one), id(other))
    if any(("of sizes", id(side)) not in asked for side in (one, other)):
        return joined(one, other)
    if key not in asked:
        parts = [asked["condition", id(side)] for side in (one, other)]
        whole: Any = sympy.Or if joined is torch.logical_or else sympy.And
        asked[key] = _of_sizes(asked, joined(one, other), None if None in parts else whole(*parts))
    made: Tensor = asked[key]
    return made


def _last(*parts: Callable[[], Any]) -> Any:
    return _value(parts, until=False)


def _first(*parts: Callable[[], Any]) -> Any:
    return _value(parts, until=True)


def _value(parts: Sequence[Callable[[], Any]], *, until: bool) -> Any:
    """What Python gives for `a and b`, or `a or b`: truth values that hang on free sizes as one, or a part itself.

    Raises:
        OneWayOnlyError: sizes say which part it is, and these are no truth values.
    """
    made: Any = None
    for place, part in enumerate(parts):
        value = part() if made is None else _as_unreached(part)
        is_last = place == len(parts) - 1
        answer = _truth(value) if isinstance(value, torch.SymBool) else value
        if isinstance(answer, Tensor) and answer.dtype is torch.bool and not answer.dim():
            made = answer if made is None else _both(torch.logical_or if until else torch.logical_and, made, answer)
        elif made is not None:
            if not isinstance(answer, bool):
                raise OneWayOnlyError(f"sizes say which of its parts `a {'or' if until else 'and'} b` is")
            if answer is until:
                return until
        elif is_last:
            return value
        elif isinstance(value, (torch.SymInt, torch.SymFloat)) and not statically_known_true(value != 0):
            raise OneWayOnlyError(f"sizes say which of its parts `a {'or' if until else 'and'} b` is")
        elif bool(value) is until:
            return value
    return made


def _as_unreached(part: Callable[[], Any]) -> Any:
    """A part of `a and b` that Python may not reach at some sizes, where the file works it out all the same."""
    return part() if torch.compiler.is_dynamo_compiling() else by_what_is_not_zero(part)


def _all_of(answers: Sequence[Any]) -> Any:
    return _joined(map(_known, answers), until=False)


def _any_of(answers: Sequence[Any]) -> Any:
    return _joined(map(_known, answers), until=True)


def _known(answer: Any) -> Callable[[], Any]:
    return lambda: answer


def _joined(parts: Iterable[Callable[[], Any]], *, until: bool) -> Any:
    """Several parts as Python asks them: the first one that is known to decide ends it."""
    made: Any = not until
    for part in parts:
        value = _as_unreached(part) if isinstance(made, Tensor) else part()
        if isinstance(value, Tensor):
            both = torch.logical_or if until else torch.logical_and
            made = _both(both, made, value) if isinstance(made, Tensor) else value
        elif bool(value) is until:
            return value
    return made


CALLED: Mapping[str, Callable[..., Any]] = {
    COMPARED: _compared,
    NOT: _not,
    TRUTH: _truth,
    ALL: _all,
    ANY: _any,
    ALL_OF: _all_of,
    ANY_OF: _any_of,
    NUMBER: _number,
    ONCE: _once,
    LAST: _last,
    FIRST: _first,
    FLAG: _flag,
    IDENTICAL: _identical,
    MATCHED: _matched,
}
"""Names in the new code -> what they stand for."""
