"""Whether something holds of whole numbers made of one size at every size, found by trying as many as are different.

Arrives: expressions of sums, multiples, whole quotients, remainders, larger and smaller ones. Leaves: so many sizes
from 0 on that what these expressions do beyond is known from them, or nothing. From some size on each of them grows by
as much again in every period; before, their parts overtake one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from batch_export.exporter.capture.guard_symbols import evaluated, python_code

_MOST = 30_000
"""Sizes that are tried at most."""
_FACTORS = 2
_RELATIONS = (sympy.Eq, sympy.Ne, sympy.StrictLessThan, sympy.LessThan, sympy.StrictGreaterThan, sympy.GreaterThan)


@dataclass(frozen=True, slots=True)
class _Course:
    """How an expression goes.

    Attributes:
        period: after how many steps of the size it has grown by as much again.
        beside: how far it is at most from what grows evenly.
        is_square: whether it has a product of what grows in it, which overtakes others far later.
    """

    period: int
    beside: sympy.Rational
    is_square: bool = False


def sizes(expressions: Iterable[sympy.Basic]) -> range | None:
    """Sizes of the one symbol of some expressions beyond which nothing new comes; None where that is not known."""
    expressions = list(expressions)
    if len({symbol for one in expressions for symbol in one.free_symbols}) > 1:
        return None
    courses = [_course(one) for one in expressions]
    if any(one is None for one in courses):
        return None
    known = [one for one in courses if one is not None]
    period = math.lcm(*(one.period for one in known))
    settled = int(sum((one.beside for one in known), sympy.Integer(1))) + 1  # each overtakes another by 1 in a period
    count = (2 * settled + 2) * period * (period if any(one.is_square for one in known) else 1)
    return range(count) if count <= _MOST else None


def _course(node: sympy.Basic) -> _Course | None:
    if node.is_Symbol:
        return _Course(1, sympy.Integer(0))
    if node in (sympy.true, sympy.false):
        return _Course(1, sympy.Integer(1))
    if node.is_Integer:
        return _Course(1, abs(node))
    parts = [_course(one) for one in node.args]
    if not parts or any(one is None for one in parts):
        return None
    known = [one for one in parts if one is not None]
    period, beside = math.lcm(*(one.period for one in known)), sum((one.beside for one in known), sympy.Integer(0))
    is_square = any(one.is_square for one in known)
    if isinstance(node, (FloorDiv, Mod, PythonMod)):
        number = node.args[1]
        if not number.is_Integer or number <= 0:
            return None
        of = known[0]
        if isinstance(node, FloorDiv):
            return _Course(of.period * int(number), of.beside / number + 1, is_square)
        return _Course(of.period * int(number), sympy.Integer(number))
    if isinstance(node, sympy.Mul):
        numbers = [one for one in node.args if one.is_number]
        others = [part for part, one in zip(known, node.args, strict=True) if not one.is_number]
        if len(others) > _FACTORS or not all(one.is_Integer for one in numbers):
            return None
        times = abs(math.prod(map(int, numbers)))
        wide = others[0].beside if len(others) == 1 else math.prod(one.beside + 1 for one in others)
        if len(others) > 1 and is_square:
            return None
        return _Course(period, wide * times, is_square or len(others) > 1)
    is_followed = isinstance(node, (sympy.Add, Max, Min, sympy.And, sympy.Or, sympy.Not, *_RELATIONS))
    return _Course(period, beside, is_square) if is_followed else None


def code_of(expressions: Sequence[sympy.Basic]) -> Callable[[int], list[Any]] | None:
    """What expressions of one symbol are at a size; None where they cannot be evaluated."""
    codes = [python_code(one) for one in expressions]
    names = sorted({str(symbol) for one in expressions for symbol in one.free_symbols})
    if any(one is None for one in codes) or len(names) > 1:
        return None
    known: list[CodeType] = [one for one in codes if one is not None]

    def values(size: int) -> list[Any]:
        return [evaluated(one, dict.fromkeys(names, size)) for one in known]

    return values


def holds_at_every(
    expressions: Sequence[sympy.Basic], holds: Callable[..., bool], among: Iterable[sympy.Basic] = ()
) -> bool:
    """Whether something is true of the values of expressions at every size; False where that is not known.

    Args:
        expressions: those.
        holds: is told their values.
        among: further expressions that decide how many sizes are different.
    """
    tried, values = sizes([*expressions, *among]), code_of(expressions)
    if tried is None or values is None:
        return False
    try:
        return all(holds(*values(size)) for size in tried)
    except (ArithmeticError, NameError, TypeError, ValueError):
        return False
