"""Decisions by fractions made of sizes that torch's algebra makes otherwise than Python's numbers.

torch writes sums and products of such fractions as sympy does, which puts numbers together: `n * 0.1 * 10` is `n`
there, and Python's is 3.0000000000000004 for 3. A comparison that is decided so leaves no guard, or another one. Of
fractions of the data it has `v == v` and `v - v == 0` for true, which they are not of NaN.

Arrives: a capture that is about to run. Leaves: the comparisons that come out otherwise at some size that the axes may
have, with their lines; those of data are torch's error for decisions by data. What is computed, and not decided, is
recorded step by step and needs nothing of this.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import sympy
import torch
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.functions import CeilToInt, FloorToInt, RoundToInt, TruncToInt
from torch.utils._sympy.symbol import SymT, symbol_is_type

from batch_export.exporter.capture.guard_sources import users_location
from batch_export.exporter.capture.shorter_sizes import shorten

_STEPS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "neg", "mod")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **dict.fromkeys(("truediv", "float_truediv", "int_truediv"), operator.truediv),
    **dict.fromkeys(("pow", "float_pow", "pow_by_natural"), operator.pow),
    **dict.fromkeys(("floordiv", "int_floordiv"), operator.floordiv),
    "sym_min": min,
    "sym_max": max,
    "sym_float": float,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "round": round,
}
"""Method of torch's symbolic numbers -> what Python computes with plain ones."""
_DYNAMOS = os.path.join(os.path.dirname(torch.__file__), "_dynamo", "variables") + os.sep
_BETWEEN = 4
"""Calls between what asks and the methods that this replaces."""
_DIVISIONS = (operator.truediv, float)
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_DECISION = "guard_bool"
_WHOLE = (CeilToInt, FloorToInt, RoundToInt, TruncToInt)
"""What makes a whole number of a fraction: of NaN and of infinity each fails, in torch as in Python."""
_SIZES: tuple[int, ...] = (*range(1, 20), 25, 33, 49, 64, 99, 127, 300, 777, 1023, 10007, 65537, 1000003, 16777217)


@dataclass(frozen=True, slots=True)
class RoundedDecision:
    """One comparison.

    Attributes:
        condition: what torch made of it.
        size: one at which Python says otherwise.
        source: `file:line` in the model, empty when it is not known.
    """

    condition: str
    size: int
    source: str = ""


@contextlib.contextmanager
def rounded_decisions() -> Iterator[list[RoundedDecision]]:
    """Those of the captures that run while it is open.

    NOTE: by methods of torch's symbolic numbers; what a torch does not have of them goes unseen.
    """
    seen: list[RoundedDecision] = []
    steps: WeakKeyDictionary[SymNode, Any] = WeakKeyDictionary()
    answered: WeakSet[SymNode] = WeakSet()
    exact: WeakSet[SymNode] = WeakSet()
    of_data: set[sympy.Symbol] = set()
    judged: dict[tuple[object, object], int | None] = {}
    originals = {name: getattr(SymNode, name) for name in (*_STEPS, _DECISION) if hasattr(SymNode, name)}

    def noting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        compute = _STEPS[name]

        def _compute_exactly(self: SymNode, *others: Any) -> Any:
            made = original(self, *others)
            if not isinstance(made, SymNode):
                return made
            given = (self, *others)
            is_shorter = shorten(made)
            is_of_fractions = any(isinstance(one, SymNode) and one.pytype is float for one in given)
            if not (is_shorter or is_of_fractions or steps or exact or made.pytype is float):
                return made  # as most are, of which there are very many
            if is_shorter and _is_quotient(_written(self, steps)):
                exact.add(made)
            if made in exact:  # also where torch asks once more, to record it
                return made
            if made.pytype is float or (steps and any(isinstance(one, SymNode) and one in steps for one in given)):
                steps[made] = (compute, *(_written(one, steps) for one in given))
            if is_of_fractions:  # among sizes alone there are none of the data
                fractions = _of_data(*(_written(one, steps) for one in given))
                of_data.update(fractions)
                if fractions - made.expr.free_symbols:
                    if name not in _COMPARISONS:  # `v - v`, NaN of infinity; `v + w - v`, which is 0 of a large v
                        raise _answered_by_algebra(made)
                    answered.add(made)
            return made

        return _compute_exactly

    def _decide_exactly(self: SymNode, *place: Any) -> bool:
        if (self in answered or (of_data and _is_decided_by_ranges(self))) and not _is_dynamos_own():
            raise _answered_by_algebra(self)
        written = steps.get(self)
        condition = None if written is None else self.expr
        answer: bool = originals[_DECISION](self, *place)
        if written is not None and self.shape_env is not None:
            key = (written, condition)
            if key not in judged:
                judged[key] = _differs(written, condition, self.shape_env.var_to_range)
            size = judged[key]
            if size is not None:
                seen.append(RoundedDecision(str(condition), size, users_location()))
        return answer

    for name, original in originals.items():
        setattr(SymNode, name, _decide_exactly if name == _DECISION else noting(name, original))
    try:
        yield seen
    finally:
        for name, original in originals.items():
            setattr(SymNode, name, original)


def _is_quotient(written: Any) -> bool:
    """Whether a number was made of whole ones by divisions alone."""
    return not isinstance(written, tuple) or (written[0] in _DIVISIONS and all(map(_is_quotient, written[1:])))


def _written(number: Any, steps: Mapping[SymNode, Any]) -> Any:
    if not isinstance(number, SymNode):
        return number
    known = steps.get(number)
    return number.expr if known is None else known


def _differs(written: Any, condition: Any, ranges: Mapping[Any, Any]) -> int | None:
    """A size of the free axes at which the comparison, step by step, is not what torch's form of it is."""
    symbols = _symbols(written)
    if any(symbol not in ranges for symbol in symbols):
        return None
    for size in _SIZES:
        at = {symbol: sympy.Integer(size + offset) for offset, symbol in enumerate(symbols)}
        if not all(ranges[symbol].lower <= number <= ranges[symbol].upper for symbol, number in at.items()):
            continue
        try:
            if bool(_value(written, at)) != bool(condition.xreplace(at)):
                return size
        except (ArithmeticError, TypeError, ValueError):
            continue  # Python refuses it there, or sympy cannot tell
    return None


def _is_decided_by_ranges(node: SymNode) -> bool:
    """Whether torch decides a condition on fractions of the data (`v * v >= 0`) by ranges, which have no NaN.

    Whole numbers made of them, such as the length of `arange(v)`, are never NaN.
    """
    environment: Any = node.shape_env
    expression = node.expr
    if not _of_data(expression):
        return False
    if not _of_data(expression.xreplace({one: sympy.Integer(0) for one in expression.atoms(*_WHOLE)})):
        return False
    return environment._maybe_evaluate_static(expression) is not None


def _is_dynamos_own() -> bool:
    """Whether dynamo asks whether a number that it keeps is the same one, which is no decision of the model."""
    frame: FrameType | None = sys._getframe(2)
    for _ in range(_BETWEEN):
        if frame is None:
            return False
        if frame.f_code.co_name == "create" and frame.f_code.co_filename.startswith(_DYNAMOS):
            return True
        frame = frame.f_back
    return False


def _answered_by_algebra(node: SymNode) -> GuardOnDataDependentSymNode:
    return GuardOnDataDependentSymNode(node.expr, f"{node.expr} goes by the data, and NaN is neither more nor less")


def _of_data(*written: Any) -> set[sympy.Symbol]:
    """The fractions of the data among what numbers were made of."""
    found = {symbol for one in written for symbol in _symbols(one)}
    return {symbol for symbol in found if symbol_is_type(symbol, SymT.UNBACKED_FLOAT)}


def _symbols(written: Any) -> list[sympy.Symbol]:
    if isinstance(written, tuple):
        return sorted({symbol for part in written[1:] for symbol in _symbols(part)}, key=str)
    return sorted(written.free_symbols, key=str) if isinstance(written, sympy.Basic) else []


def _value(written: Any, at: Mapping[sympy.Symbol, sympy.Integer]) -> Any:
    if isinstance(written, tuple):
        return written[0](*(_value(part, at) for part in written[1:]))
    if not isinstance(written, sympy.Basic):
        return written
    number = at[written] if isinstance(written, sympy.Symbol) else written.xreplace(at)
    return int(number) if number.is_Integer else float(number)
