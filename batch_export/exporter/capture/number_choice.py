"""One of two numbers of sizes, chosen by questions on sizes, by arithmetic that torch can reason about.

Arrives: the numbers (`4 - w % 4` and 0), and the questions (`w % 4 != 0`). Leaves: the larger or smaller one of them
(`max(10 - n, 0)`) or a remainder (`(4 - w % 4) % 4`) where that is the same, since from these torch sees what divides a
length; else their difference times 1 or 0.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator, Sequence

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from batch_export.exporter.capture.every_size import code_of, holds_at_every
from batch_export.exporter.capture.size_questions import Question

Number = int | torch.SymInt
_SLOPES = (1, -1, 2, -2)


def chosen(then: Number, otherwise: Number, asked: Sequence[Question]) -> Number:
    """The first number where any of several questions on free sizes is answered by yes, else the second one.

    A simpler number is taken only where it is the same at every size.

    Raises:
        ZeroDivisionError: a file would work out both, and at some sizes one of them is no number.
    """
    first, second = _expression(then), _expression(otherwise)
    if first == second:
        return otherwise
    if any(_may_be_none(one) for one in (first, second)):
        raise ZeroDivisionError
    condition = _condition(asked)
    simpler = _of_what_is_compared(then, otherwise, asked)
    if simpler is not None:
        return simpler
    if any(_alone(first, second, one) for one in asked):
        return then
    for one in itertools.chain(_candidates(then, otherwise, condition, asked), _along(first, second, asked)):
        expressions = _in_one_symbol([_expression(one), first, second, condition])
        if holds_at_every(expressions, lambda made, yes, no, holds: made == (yes if holds else no)):
            return one
    holds: int | torch.SymInt = functools.reduce(torch.sym_max, (one.as_number for one in asked))
    return otherwise + (then - otherwise) * holds


def never_negative(number: Number, asked: Sequence[Question], *, answer: bool) -> bool:
    """Whether a number is known to be 0 or more at all sizes at which questions have an answer: any yes, or none."""
    if _of_lengths(_expression(number)).is_nonnegative:
        return True
    expressions = _in_one_symbol([_expression(number), _condition(asked)])
    return holds_at_every(expressions, lambda made, holds: bool(holds) != answer or made >= 0)


def exclusive(asked: Sequence[Question], others: Sequence[Question]) -> bool:
    """Whether of several questions and several others none are known to be answered by yes at the same sizes."""
    pairs = [(_above(one), _above(other)) for one, other in itertools.product(asked, others)]
    sums = [sympy.expand(one + other) if one is not None and other is not None else None for one, other in pairs]
    if all(one is not None and one.is_number and one <= 1 for one in sums):
        return True
    expressions = _in_one_symbol([_condition(asked), _condition(others)])
    return holds_at_every(expressions, lambda one, other: not (one and other))


def _of_lengths(expression: sympy.Expr) -> sympy.Expr:
    """The same of sizes that may be 0."""
    symbols = {one: sympy.Symbol(one.name, integer=True, nonnegative=True) for one in expression.free_symbols}
    return expression.xreplace(symbols)


def _may_be_none(expression: sympy.Expr) -> bool:
    """Whether something is divided by what may be 0."""
    divisors = [one.args[1] for one in expression.atoms(Mod, PythonMod, FloorDiv)]
    return not all(_of_lengths(one).is_positive for one in divisors)


def _above(question: Question) -> sympy.Expr | None:
    """A whole number that is above 0 where a question is answered by yes, and nowhere else; None of equalities."""
    more = _expression(question.left) - _expression(question.right)
    if question.kind in (ast.Gt, ast.GtE):
        return more + int(question.kind is ast.GtE)
    return int(question.kind is ast.LtE) - more if question.kind in (ast.Lt, ast.LtE) else None


def _of_what_is_compared(then: Number, otherwise: Number, asked: Sequence[Question]) -> Number | None:
    """The larger or smaller of two numbers whose difference is what a question compares, so many times."""
    if len(asked) != 1:
        return None
    (question,) = asked
    compared = sympy.expand(_expression(question.left) - _expression(question.right))
    difference = sympy.expand(_expression(then) - _expression(otherwise))
    term = next((one for one in compared.as_coefficients_dict() if not one.is_number), None)
    if term is None:
        return None
    times = difference.coeff(term) / compared.coeff(term)
    if not times.is_number or times == 0 or sympy.expand(difference - times * compared) != 0:
        return None
    if question.kind in (ast.Eq, ast.NotEq):
        return then if question.kind is ast.NotEq else otherwise
    is_larger = (question.kind in (ast.Gt, ast.GtE)) == bool(times > 0)
    made: Number = torch.sym_max(then, otherwise) if is_larger else torch.sym_min(then, otherwise)
    return made


def _alone(first: sympy.Expr, second: sympy.Expr, question: Question) -> bool:
    """Whether two numbers are the same wherever a question is answered by no, so that no other one matters."""
    expressions = _in_one_symbol([first, second, _condition([question])])
    return holds_at_every(expressions, lambda yes, no, holds: bool(holds) or yes == no)


def _in_one_symbol(expressions: Sequence[sympy.Basic]) -> list[sympy.Basic]:
    """Expressions of what their remainders are taken of, where that is all that they have of several sizes."""
    if len({symbol for one in expressions for symbol in one.free_symbols}) > 1:
        for of in {part.args[0] for one in expressions for part in one.atoms(Mod, PythonMod, FloorDiv)}:
            symbol = sympy.Symbol("_of_sizes", integer=True, nonnegative=True)
            made = [one.xreplace({of: symbol}) for one in expressions]
            if of.is_nonnegative and all(one.free_symbols <= {symbol} for one in made):
                return made
    return list(expressions)


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


def _along(first: sympy.Expr, second: sympy.Expr, asked: Sequence[Question]) -> Iterator[Number]:
    """Numbers that go up or down with what is asked: `1 + h % 2` pads as TensorFlow does (`max(3 - h % 2, 0)` or 1)."""
    condition = _condition(asked)
    values = code_of(expressions := [first, second, condition])
    for question in asked:
        left = _expression(question.left)
        if not isinstance(question.left, torch.SymInt) or left.is_Symbol or values is None:
            continue
        if not left.free_symbols <= {symbol for one in expressions for symbol in one.free_symbols}:
            continue
        yes, no, holds = values(0)
        begin = left.xreplace(dict.fromkeys(left.free_symbols, sympy.Integer(0)))
        for times in _SLOPES:
            number = (yes if holds else no) - times * begin
            if begin.is_Integer:
                yield question.left * times + int(number)


def _expression(number: Number) -> sympy.Expr:
    return number.node.expr if isinstance(number, torch.SymInt) else sympy.Integer(number)
