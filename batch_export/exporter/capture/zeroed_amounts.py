"""Amounts that are 0 where a condition on sizes does not hold, by arithmetic that torch can reason about.

Arrives: a number of sizes (`4 - w % 4`), and a condition on them (`w % 4 != 0`). Leaves: the number where the condition
holds, else 0: its remainder (`(4 - w % 4) % 4`) or the larger of it and 0 (`max(10 - n, 0)`) where that is the same,
since from these torch sees what divides a padded length; else the number times 1 or 0.
"""

from __future__ import annotations

import ast
import functools
import itertools
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Mod, PythonMod

_POINTS = 200
_SMALL = range(40)


@dataclass(frozen=True, slots=True)
class Question:
    """A comparison of sizes.

    Attributes:
        left: what is compared.
        kind: how, as Python's grammar calls it.
        right: with what.
    """

    left: int | torch.SymInt
    kind: type[ast.cmpop]
    right: int | torch.SymInt

    @property
    def holds(self) -> bool | torch.SymBool:
        """The answer."""
        answer: bool | torch.SymBool = _COMPARE[self.kind](self.left, self.right)
        return answer

    @property
    def as_number(self) -> int | torch.SymInt:
        """1 where it holds, else 0."""
        more, less = self.left - self.right, self.right - self.left
        if self.kind in (ast.Eq, ast.NotEq):
            differ = _one_of(torch.sym_max(more, less))
            return differ if self.kind is ast.NotEq else 1 - differ
        count = more if self.kind in (ast.Gt, ast.GtE) else less
        return _one_of(count + 1 if self.kind in (ast.GtE, ast.LtE) else count)


_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
KINDS = tuple(_COMPARE)
"""Comparisons that are questions."""


def zeroed(amount: int | torch.SymInt, asked: Sequence[Question]) -> int | torch.SymInt:
    """A number where any of several questions on free sizes is answered by yes, and 0 elsewhere."""
    if not isinstance(amount, torch.SymInt) and amount == 0:
        return amount
    own = _expression(amount)
    condition = sympy.Or(*(one.holds.node.expr for one in asked if isinstance(one.holds, torch.SymBool)))
    symbols = sorted(own.free_symbols | condition.free_symbols, key=str)
    points = list(_points(symbols, [own, condition]))
    for one in _candidates(amount, condition, asked):
        if all(_same(_expression(one), own, condition, point) for point in points):
            return one
    any_holds: int | torch.SymInt = functools.reduce(torch.sym_max, (one.as_number for one in asked))
    return amount * any_holds


def _candidates(
    amount: int | torch.SymInt, condition: sympy.Basic, asked: Sequence[Question]
) -> Iterator[int | torch.SymInt]:
    """Simple numbers that may be what is wanted."""
    yield amount
    for one in condition.atoms(Mod, PythonMod):
        if one.args[1].is_Integer:
            yield amount % int(one.args[1])
    yield torch.sym_max(amount, 0)
    for question in asked:
        yield amount * question.left


def _one_of(count: int | torch.SymInt) -> int | torch.SymInt:
    """1 for numbers above 0, else 0."""
    found: int | torch.SymInt = torch.sym_min(torch.sym_max(count, 0), 1)
    return found


def _expression(number: int | torch.SymInt) -> sympy.Expr:
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)


def _same(candidate: sympy.Expr, own: sympy.Expr, condition: sympy.Basic, point: dict[sympy.Symbol, Any]) -> bool:
    """Whether a number is what is wanted at some sizes."""
    wanted = own.xreplace(point) if condition.xreplace(point) == sympy.true else 0
    return bool(candidate.xreplace(point) == wanted)


def _points(symbols: Sequence[sympy.Symbol], expressions: Sequence[sympy.Basic]) -> Iterator[dict[sympy.Symbol, Any]]:
    """Sizes to try: small ones, and those round the numbers of the expressions and their multiples."""
    numbers = {abs(int(one)) for each in expressions for one in each.atoms(sympy.Integer)}
    round_these = (base * times + step for base in numbers for times in (1, 2, 3) for step in (-1, 0, 1))
    sizes = sorted({*_SMALL, *(one for one in round_these if one >= 0)})
    alike = ([size] * len(symbols) for size in sizes)
    chosen = random.Random(0)
    several = ([chosen.choice(sizes) for _ in symbols] for _ in range(_POINTS if len(symbols) > 1 else 0))
    for each in itertools.chain(alike, several):
        yield dict(zip(symbols, map(sympy.Integer, each), strict=True))
