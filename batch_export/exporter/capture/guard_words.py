"""Limits in the words that their user would choose: `T >= 2` for `4*B*max(0, T - 1) != 0`.

Arrives: a guard beyond which a program fails, and the sizes at which it is false. Leaves: the guard as a limit. Nothing
is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sympy

from batch_export.exporter.capture import guard_points
from batch_export.exporter.capture.guard_points import Point
from batch_export.exporter.capture.guard_symbols import Symbols
from batch_export.exporter.capture.guards import Guard

RELATIONS = (sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)
_PLAIN = (*RELATIONS, sympy.Ne)


def as_limit(guard: Guard, points: Sequence[Point], symbols: Symbols) -> Guard:
    """A limit in the words of one, unless its condition is as plain already.

    Args:
        guard: the guard.
        points: sizes at which it is false.
        symbols: what its condition's symbols are.
    """
    sides = guard.expression.args if isinstance(guard.expression, _PLAIN) else ()
    is_plain = any(side.is_Symbol for side in sides) and all(side.is_Symbol or side.is_number for side in sides)
    words = "" if is_plain else guard_points.limit(points, guard.expression, symbols) or _of_each(guard, symbols)
    return replace(guard, is_limit=True, condition=words or guard.condition)


def counted(expression: object) -> Any:
    """The number of elements of which a condition says that there are some; None for any other condition."""
    if not isinstance(expression, _PLAIN):
        return None
    left, right = expression.args
    if isinstance(expression, (sympy.Lt, sympy.Le)):
        left, right = right, left
    least = 1 if isinstance(expression, (sympy.Le, sympy.Ge)) else 0
    if right == least:
        return left
    return right if isinstance(expression, sympy.Ne) and left == 0 else None


def _of_each(guard: Guard, symbols: Symbols) -> str:
    """The limits of each axis where a guard asks for elements along all of several; empty where it asks for more."""
    number = counted(guard.expression)
    found: list[str] = []
    for factor in number.args if isinstance(number, sympy.Mul) else ():
        if factor.is_number:
            continue
        condition = sympy.Ne(factor, 0, evaluate=False)
        points = guard_points.against(condition, symbols, {})
        words = guard_points.limit(points, condition, symbols) if points else ""
        if not words:
            return ""
        found.append(words)
    return " and ".join(dict.fromkeys(found))
