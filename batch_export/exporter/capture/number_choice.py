"""One of two numbers of sizes, chosen by questions on sizes, by arithmetic that torch can reason about.

Arrives: the numbers (`4 - w % 4` and 0), and the questions (`w % 4 != 0`). Leaves: the larger or smaller one of them
(`max(10 - n, 0)`) or a remainder (`(4 - w % 4) % 4`) where that is the same, since from these torch sees what divides a
length; else their difference times 1 or 0.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Mod, PythonMod

from batch_export.exporter.capture.size_questions import Question

Number = int | torch.SymInt
_POINTS = 200
_SMALL = range(40)
_SLOPES = (1, -1, 2, -2)


def chosen(then: Number, otherwise: Number, asked: Sequence[Question]) -> Number:
    """The first number where any of several questions on free sizes is answered by yes, else the second one."""
    first, second = _expression(then), _expression(otherwise)
    if first == second:
        return otherwise
    condition = _condition(asked)
    symbols = sorted(first.free_symbols | second.free_symbols | condition.free_symbols, key=str)
    points = list(_points(symbols, [first, second, condition]))
    for one in itertools.chain(_candidates(then, otherwise, condition, asked), _along(first, second, asked, points)):
        if all(_same(_expression(one), first, second, condition, point) for point in points):
            return one
    holds: int | torch.SymInt = functools.reduce(torch.sym_max, (one.as_number for one in asked))
    return otherwise + (then - otherwise) * holds


def never_negative(number: Number, asked: Sequence[Question], *, answer: bool) -> bool:
    """Whether a number is 0 or more at all sizes at which the questions have an answer: any of them yes, or none."""
    expression, condition = _expression(number), _condition(asked)
    symbols = sorted(expression.free_symbols | condition.free_symbols, key=str)
    return all(
        expression.xreplace(point) >= 0
        for point in _points(symbols, [expression, condition])
        if (condition.xreplace(point) == sympy.true) == answer
    )


def exclusive(asked: Sequence[Question], others: Sequence[Question]) -> bool:
    """Whether of several questions and several others there are no sizes at which some of both are answered by yes."""
    first, second = _condition(asked), _condition(others)
    symbols = sorted(first.free_symbols | second.free_symbols, key=str)
    return not any(
        first.xreplace(point) == sympy.true and second.xreplace(point) == sympy.true
        for point in _points(symbols, [first, second])
    )


def _condition(asked: Sequence[Question]) -> sympy.Basic:
    return sympy.Or(*(one.holds.node.expr for one in asked if isinstance(one.holds, torch.SymBool)))


def _candidates(then: Number, otherwise: Number, condition: sympy.Basic, asked: Sequence[Question]) -> Iterator[Number]:
    """Simple numbers that may be what is wanted."""
    yield then
    yield otherwise
    yield torch.sym_max(then, otherwise)
    yield torch.sym_min(then, otherwise)
    for one in condition.atoms(Mod, PythonMod):
        if one.args[1].is_Integer and isinstance(then - otherwise, torch.SymInt):
            yield (then - otherwise) % int(one.args[1]) + otherwise
    for question in asked:
        yield (then - otherwise) * question.left + otherwise


def _along(
    first: sympy.Expr, second: sympy.Expr, asked: Sequence[Question], points: Sequence[dict[sympy.Symbol, Any]]
) -> Iterator[Number]:
    """Numbers that go up or down with what is asked: `1 + h % 2` pads as TensorFlow does (`max(3 - h % 2, 0)` or 1)."""
    condition = _condition(asked)
    for question in asked:
        left = _expression(question.left)
        if not isinstance(question.left, torch.SymInt) or left.is_Symbol or not points:
            continue
        for times in _SLOPES:
            wanted = first if condition.xreplace(points[0]) == sympy.true else second
            begin = wanted.xreplace(points[0]) - times * left.xreplace(points[0])
            if begin.is_Integer:
                yield question.left * times + int(begin)


def _expression(number: Number) -> sympy.Expr:
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)


def _same(
    candidate: sympy.Expr,
    first: sympy.Expr,
    second: sympy.Expr,
    condition: sympy.Basic,
    point: dict[sympy.Symbol, Any],
) -> bool:
    """Whether a number is what is wanted at some sizes."""
    wanted = first if condition.xreplace(point) == sympy.true else second
    return bool(candidate.xreplace(point) == wanted.xreplace(point))


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
