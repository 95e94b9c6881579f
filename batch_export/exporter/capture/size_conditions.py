"""Conditions on sizes that truth values of a capture stand for, and the equalities that they say.

Arrives: answers to questions on sizes, as `size_answers.py` makes them, with what was asked. Leaves: for a truth value
that decides something the condition on torch's symbols, or on names of where torch read them, which another capture of
the same inputs has too. Nothing is asked or decided here.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import sympy
import torch
from sympy.core.relational import Relational
from torch.fx.experimental.sym_node import SymNode
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

_NOTED = "_batch_export_conditions"
"""Where torch's environment of sizes keeps what truth values stand for."""
_MET: ContextVar[list[sympy.Basic]] = ContextVar("_MET")
_RELATIONS: Mapping[str, type[sympy.Basic]] = {
    "Lt": sympy.StrictLessThan,
    "LtE": sympy.LessThan,
    "Gt": sympy.StrictGreaterThan,
    "GtE": sympy.GreaterThan,
    "Eq": sympy.Eq,
    "NotEq": sympy.Ne,
}
_COMPARED: Mapping[Any, Callable[..., torch.Tensor]] = {
    sympy.StrictLessThan: operator.lt,
    sympy.LessThan: operator.le,
    sympy.StrictGreaterThan: operator.gt,
    sympy.GreaterThan: operator.ge,
    sympy.Eq: operator.eq,
    sympy.Ne: operator.ne,
}
Equality = tuple[Any, Any]


def compared(left: object, kind: str, right: object) -> sympy.Basic | None:
    """A comparison of whole numbers on torch's symbols; None of others.

    Args:
        left, right: numbers, plain or symbolic.
        kind: of comparison, as Python's grammar calls it.
    """
    sides = [one.node.expr if isinstance(one, torch.SymInt) else one for one in (left, right)]
    if not all(isinstance(one, (int, sympy.Basic)) for one in sides):
        return None
    made: sympy.Basic = sympy.sympify(_RELATIONS[kind](*sides))
    return made


def note(answer: object, condition: sympy.Basic | None) -> None:
    """Notes what a truth value stands for."""
    if condition is not None and isinstance(answer, torch.SymBool) and answer.node.shape_env is not None:
        vars(answer.node.shape_env).setdefault(_NOTED, {})[answer.node.expr] = condition
        _MET.get([]).append(condition)


@contextlib.contextmanager
def conditions_met(met: list[sympy.Basic]) -> Iterator[None]:
    """Within, a list gets the conditions that are asked for."""
    earlier = _MET.set(met)
    try:
        yield
    finally:
        _MET.reset(earlier)


def noted(node: SymNode) -> sympy.Basic | None:
    """What was noted of a truth value."""
    table = vars(node.shape_env).get(_NOTED, {}) if node.shape_env is not None else {}
    found: sympy.Basic | None = table.get(node.expr)
    return found


def equalities(condition: Any, *, holds: bool) -> list[Equality]:
    """The equalities that hold where a condition does, or does not."""
    if isinstance(condition, sympy.Not):
        return equalities(condition.args[0], holds=not holds)
    if isinstance(condition, sympy.And if holds else sympy.Or):
        return [pair for part in condition.args for pair in equalities(part, holds=holds)]
    if isinstance(condition, sympy.Eq if holds else sympy.Ne):
        return [(condition.lhs, condition.rhs)]
    return []


def held(condition: Any, *, holds: bool) -> list[Any]:
    """The comparisons that are true where a condition holds, or does not."""
    known = condition if holds else sympy.Not(condition)
    return [one for one in parts(known) if isinstance(one, Relational)]


def parts(condition: Any) -> list[Any]:
    """The conditions that hold where all of one holds."""
    return list(condition.args) if isinstance(condition, sympy.And) else [condition]


def ties(pairs: Iterable[Equality]) -> dict[Any, Any]:
    """What sizes are where some things are equal: symbols, and expressions that say of no one symbol what it is."""
    found: dict[sympy.Symbol, Any] = {}
    others: dict[Any, Any] = {}
    for pair in pairs:
        if (multiple := _of_remainder(*pair) or _of_remainder(*pair[::-1])) and not multiple.keys() & found.keys():
            found |= multiple
            continue
        one, other = (side.xreplace(found) for side in pair)
        if one.is_Symbol and not other.has(one):
            new = {one: other}
        elif other.is_Symbol and not one.has(other):
            new = {other: one}
        else:
            simple, longer = sorted((one, other), key=lambda side: (sympy.count_ops(side), str(side)))
            if simple != longer and not longer.is_Atom:
                others[longer] = simple
            continue
        found = {**{symbol: value.xreplace(new) for symbol, value in found.items()}, **new}
    known = {longer.xreplace(found): simple.xreplace(found) for longer, simple in others.items()}
    return {**found, **{longer: simple for longer, simple in known.items() if longer != simple and not longer.is_Atom}}


def _of_remainder(remainder: Any, value: Any) -> dict[Any, Any]:
    """A size of which a remainder is known, as its multiple and that: `n % 4 == 1` is `n == 4 * (n // 4) + 1`.

    `-n % 4 == 1` is `n == 4 * ((n + 1) // 4) - 1`.
    """
    if not isinstance(remainder, (Mod, PythonMod)) or not value.is_Integer or not remainder.args[1].is_Integer:
        return {}
    size, period = remainder.args
    if size.is_Symbol:
        return {size: period * FloorDiv(size, period) + value}
    return {-size: period * FloorDiv(value - size, period) - value} if (-size).is_Symbol else {}


def names(environment: Any) -> dict[sympy.Symbol, sympy.Symbol]:
    """The symbols of an environment of sizes -> where torch read them, as symbols that any other environment has."""
    table = environment.var_to_sources
    read = {symbol: sources[0].name for symbol, sources in table.items() if sources}
    return {
        symbol: sympy.Symbol(str(name() if callable(name) else name), integer=True, nonnegative=True)
        for symbol, name in read.items()
    }


def named(condition: Any, environment: Any) -> Any:
    """A condition on such names; None where it is on something else."""
    known = names(environment)
    return condition.xreplace(known) if condition.free_symbols <= known.keys() else None


def sizes_there(environment: Any) -> dict[sympy.Symbol, sympy.Basic]:
    """Such names -> what they are in an environment of sizes, as far as it knows."""
    return {name: environment.replace(symbol) for symbol, name in names(environment).items()}


def number(expression: Any, sizes: Mapping[Any, torch.SymInt]) -> Any:
    """What an expression of sizes is, a whole number or torch's symbolic one.

    Args:
        expression: of symbols.
        sizes: these -> the sizes themselves.
    """
    if expression.is_Integer:
        return int(expression)
    return sympy_interp(PythonReferenceAnalysis, dict(sizes), expression)


def asked(condition: Any, sizes: Mapping[Any, torch.SymInt]) -> torch.Tensor:
    """A condition as a tensor that holds what it is: `bool[]`."""
    if isinstance(condition, sympy.Not):
        return ~asked(condition.args[0], sizes)
    if isinstance(condition, (sympy.And, sympy.Or)):
        both = torch.logical_and if isinstance(condition, sympy.And) else torch.logical_or
        return functools.reduce(both, (asked(part, sizes) for part in condition.args))
    if type(condition) in _COMPARED:
        sides = (torch.full((), number(side, sizes), dtype=torch.int64) for side in condition.args)
        return _COMPARED[type(condition)](*sides)
    return torch.full((), bool(condition), dtype=torch.bool)
