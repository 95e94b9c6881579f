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
from torch.fx.experimental.sym_node import SymNode
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


def parts(condition: Any) -> list[Any]:
    """The conditions that hold where all of one holds."""
    return list(condition.args) if isinstance(condition, sympy.And) else [condition]


def ties(pairs: Iterable[Equality]) -> dict[sympy.Symbol, sympy.Basic]:
    """Symbols with what they are where some things are equal; what says of no one symbol what it is says nothing."""
    found: dict[sympy.Symbol, Any] = {}
    for pair in pairs:
        one, other = (side.xreplace(found) for side in pair)
        if one.is_Symbol and not other.has(one):
            new = {one: other}
        elif other.is_Symbol and not one.has(other):
            new = {other: one}
        else:
            continue
        found = {**{symbol: value.xreplace(new) for symbol, value in found.items()}, **new}
    return found


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
