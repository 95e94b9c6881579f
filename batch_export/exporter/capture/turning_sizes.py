"""Sizes of one axis at which what a condition compares changes places, however large they are.

A condition arrives. Leaves: the sizes beside each turn of its comparisons (`int(n * 0.01) == 7` at 700 and 800,
`n ** 0.5 < 25` at 625), found by evaluating both sides at each size up to 2000, then at sizes ever further apart and
halving where they turn. What is whole numbers alone is known otherwise (`every_size.py`); what goes up and down within
a step beyond 2000 is not seen here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import sympy

from batch_export.exporter.capture.guard_symbols import python_function, symbol_names

_LARGEST = 2**24
_EVERY = 2000
_GROWS = 1.3
"""How much larger the next size is that is looked at behind those."""
_COMPARISONS = (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)
_MOST = 6
"""How many comparisons are looked at."""


def of(expression: object, largest: int = _LARGEST) -> list[int]:
    """Those of a condition of one symbol, in rising order; none of others.

    Args:
        expression: the condition.
        largest: the largest size that is looked at.
    """
    names = symbol_names(expression)
    if len(names) != 1 or not isinstance(expression, sympy.Basic) or not _has_steps(expression):
        return []
    compared = sorted(expression.atoms(*_COMPARISONS), key=str)[:_MOST]
    found = {size for one in compared for size in _turns(one.lhs - one.rhs, names, largest)}
    return sorted(found)


def _has_steps(expression: sympy.Basic) -> bool:
    """Whether more is compared than sums and multiples of the size, of which all is known from the numbers in them."""
    plain = (*_COMPARISONS, sympy.Add, sympy.Mul, sympy.Integer, sympy.Symbol, sympy.And, sympy.Or, sympy.Not)
    return not all(isinstance(one, plain) for one in sympy.preorder_traversal(expression))


def _turns(difference: sympy.Expr, names: Sequence[str], largest: int) -> Iterator[int]:
    """The sizes on both sides of where a difference becomes 0, more or less than it."""
    evaluated = python_function(difference, names)
    if evaluated is None:
        return

    def side(size: int) -> int | None:
        try:
            value: float = evaluated(size)
            return (value > 0) - (value < 0)
        except (ArithmeticError, KeyError, NameError, TypeError, ValueError):
            return None

    for low, high in itertools.pairwise(_grid(largest)):
        yield from _between(side, low, high)


def _grid(largest: int) -> Iterator[int]:
    size = 1
    while size < largest:
        yield size
        size = size + 1 if size < _EVERY else math.ceil(size * _GROWS)
    yield largest


def _between(side: Callable[[int], int | None], low: int, high: int) -> Iterator[int]:
    """Where a value turns between two sizes; twice where it is 0 in between."""
    first, last = side(low), side(high)
    if first is None or last is None or first == last:
        return
    turn = _first_other(side, low, high, first)
    yield from (turn - 1, turn)
    if side(turn) != last and turn < high:
        yield from _between(side, turn, high)


def _first_other(side: Callable[[int], int | None], low: int, high: int, first: int) -> int:
    """The first size behind one side, where there is one turn from it."""
    while high - low > 1:
        middle = (low + high) // 2
        if side(middle) == first:
            low = middle
        else:
            high = middle
    return high
