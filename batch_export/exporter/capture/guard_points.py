"""Sizes at which a guard is false.

Arrives: a condition in torch's symbols, and what they are in terms of axes. Leaves: sizes by axis at which it is false,
found by evaluating it: at every size up to 300, some large ones, parts of the example's own where that is large, and
for one axis those that the condition names and where its comparisons turn (`turning_sizes.py`), on a grid for two and
three, at random picks for more. Nothing is run.
"""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from batch_export.exporter.capture import turning_sizes
from batch_export.exporter.capture.every_size import sizes as sizes_of
from batch_export.exporter.capture.guard_symbols import FUNCTIONS, Symbols, python_code, python_function, symbol_names

Point = dict[str, int]

_FINE = (*range(301), 512, 1000, 1024, 4096, 65537)
_COARSE = (*range(20), 24, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200, 255, 256, 257, 299, 300, 1024, 65537)
_FEW = (*range(10), 12, 16, 17, 31, 32, 33, 64, 128, 300)
_RANDOM_PICKS = 3000
_LARGE = 150
"""From where on sizes are tried that the example's own is the measure of."""
_PARTS = {1: 16, 2: 4, 3: 2}
"""By the number of axes in how many parts that size is taken."""
_LARGEST_NAMED = 2**24
"""The largest size that is tried because a condition names it: torch writes limits of its own into conditions."""
_NUMBERS = 8
"""How many of a condition's numbers are looked at, and how many divisors a number may have."""
_EVERY = 4000
"""How many sizes of one axis are tried at most because a condition is known from them."""
_PAIRED = 32
"""How many of the sizes that a condition names are tried where it has two axes."""
_CONVERSIONS = frozenset({"TruncToInt", "CeilToInt", "FloorToInt", "RoundToInt", "RoundDecimal"})
"""What torch calls the steps from a number that was computed from sizes to an integer."""


def against(expression: object, symbols: Symbols, example: Mapping[str, int]) -> list[Point] | None:
    """Sizes of the guard's axes at which it is false, within their declared ranges.

    Args:
        expression: the condition.
        symbols: what its symbols are.
        example: axis -> a further size that is tried, and its neighbours.

    Returns:
        The sizes, those of one axis in rising order; None where the condition cannot be evaluated.
    """
    names = symbol_names(expression)
    holds = python_function(expression, names)
    if holds is None:
        return None
    variables = sorted({variable for name in names for variable in symbols.variables(name)})
    near = [example.get(variable) for variable in variables]
    sizes_at = _sizes_at(names, variables, symbols)
    least = [max(0, symbols.lowest(name)) for name in names]
    found: list[Point] = []
    further = [*named(expression), *turning_sizes.of(expression)]
    for values in _candidates([symbols.bounds(variable) for variable in variables], near, further):
        try:
            sizes = sizes_at(values)
            if all(map(operator.ge, sizes, least)) and not holds(*sizes):
                found.append(dict(zip(variables, values, strict=True)))
        except NameError:
            return None
        except (ArithmeticError, KeyError, TypeError, ValueError):  # a root of a negative number is complex
            continue
    return found


def _sizes_at(
    names: Sequence[str], variables: Sequence[str], symbols: Symbols
) -> Callable[[tuple[int, ...]], Sequence[int]]:
    """What symbols are when axes have given sizes: most are one of the axes each, others are computed."""
    own = [symbols.variable(name) for name in names]
    if all(one is not None for one in own):
        places = [variables.index(one) for one in own if one is not None]
        return lambda values: [values[place] for place in places]
    return lambda values: [symbols.value(name, dict(zip(variables, values, strict=True))) for name in names]


def is_false_at(expression: object, sizes: Mapping[str, int]) -> bool:
    """Whether a condition is false at some sizes of its symbols; where it cannot be evaluated, it is not."""
    return one_false_of([expression])(sizes)


def one_false_of(expressions: Iterable[object]) -> Callable[[Mapping[str, int]], bool]:
    """A function of the sizes of symbols: whether one of some conditions is false; none is that cannot be evaluated."""
    by_names = ((symbol_names(one), one) for one in expressions)
    made = [(names, holds) for names, one in by_names if (holds := python_function(one, names)) is not None]

    def is_false(names: Sequence[str], holds: Callable[..., Any], sizes: Mapping[str, int]) -> bool:
        try:
            return not holds(*(sizes[name] for name in names))
        except (ArithmeticError, KeyError, NameError, TypeError, ValueError):
            return False

    return lambda sizes: any(is_false(*one, sizes) for one in made)


def is_known_function(expression: object) -> bool:
    """Whether a condition can be evaluated at sizes."""
    return python_function(expression, symbol_names(expression)) is not None


def holds_where_filled(expression: object) -> bool:
    """Whether a condition is true wherever no axis is empty, as far as it is evaluated; False where it cannot be."""
    names = symbol_names(expression)
    holds = python_function(expression, names)
    if holds is None:
        return False
    try:
        return all(
            bool(holds(*values))
            for values in _candidates([(1, None)] * len(names), [None] * len(names), named(expression))
        )
    except (ArithmeticError, NameError, TypeError, ValueError):
        return False


def least(expression: object) -> tuple[sympy.Symbol, int] | None:
    """The one symbol of a condition, and the size from which on it holds, where it is false at all smaller sizes.

    Returns:
        None where it has several symbols, is false at larger sizes too, or cannot be evaluated.
    """
    code = python_code(expression)
    symbols = expression.free_symbols if isinstance(expression, sympy.Basic) else set()
    if code is None or len(symbols) != 1:
        return None
    (symbol,) = symbols
    functions = dict(FUNCTIONS)
    sizes = [size for (size,) in _candidates([(0, None)], [None], named(expression))]
    try:
        false = [size for size in sizes if not eval(code, functions, {str(symbol): size})]
    except (ArithmeticError, NameError, TypeError, ValueError):
        return None
    return (symbol, len(false)) if false and max(false) == len(false) - 1 else None


def named(expression: object) -> list[int]:
    """Sizes that the numbers in a condition speak of: themselves, their sums, products, quotients, roots, divisors.

    Of whole quotients and remainders of one size it is all that are different, where these are not too many.
    """
    if not isinstance(expression, sympy.Basic):
        return []
    every = sizes_of([expression]) if expression.has(FloorDiv, Mod, PythonMod) else None
    if every is not None and len(every) <= _EVERY:
        return [size for size in every if size > max(_FINE[:301])]
    numbers = sorted({abs(int(one)) for one in expression.atoms(sympy.Integer)} - {0, 1})
    numbers = [one for one in numbers if one <= _LARGEST_NAMED][-_NUMBERS:]
    found = set(numbers)
    for one, other in itertools.permutations(numbers, 2):
        found |= {one + other, abs(one - other), one // other}
        found |= {one * (other + step) for step in (-1, 0, 1)}  # `n // 160 > 5` from 960 on
    for one in numbers:
        divisors = sympy.divisors(one)
        found |= {math.isqrt(one), *(divisors if len(divisors) <= _NUMBERS else ())}
    return sorted(
        size + step for size in found for step in (-1, 0, 1) if max(_FINE[:301]) < size + step <= _LARGEST_NAMED
    )


def _candidates(
    bounds: Sequence[tuple[int, int | None]], near: Sequence[int | None], further: Sequence[int] = ()
) -> Iterator[tuple[int, ...]]:
    choices = (*_FINE, *further) if len(bounds) == 1 else (*_COARSE, *further[:_PAIRED]) if len(bounds) == 2 else _FEW
    parts = _PARTS.get(len(bounds), 1)
    sizes = [
        _within((*choices, *_beside(at, parts)), low, high, at) for (low, high), at in zip(bounds, near, strict=True)
    ]
    if len(bounds) <= 3:
        yield from itertools.product(*sizes)
        return
    generator = random.Random(0)
    for _ in range(_RANDOM_PICKS):
        yield tuple(generator.choice(one) for one in sizes)


def _beside(near: int | None, parts: int) -> list[int]:
    """Parts of a large size of the example, and multiples of them: of sounds and images small sizes are none at all."""
    if near is None or near <= _LARGE:
        return []
    return [near * one // parts for one in range(1, 3 * parts + 1)]


def _within(sizes: Sequence[int], low: int, high: int | None, near: int | None) -> list[int]:
    further = [] if near is None else [near - 1, near, near + 1]
    ends = [low] if high is None else [low, high]
    return sorted({one for one in (*sizes, *further, *ends) if one >= low and (high is None or one <= high)})


def one_is_false(conditions: Sequence[object], symbols: Symbols, point: Mapping[str, int]) -> bool:
    """Whether one of some conditions is false at some sizes; one that cannot be evaluated there is not."""
    for one in conditions:
        names = symbol_names(one)
        code = python_code(one)
        if code is None:
            continue
        try:
            if not eval(code, dict(FUNCTIONS), {name: symbols.value(name, point) for name in names}):
                return True
        except (ArithmeticError, KeyError, NameError, TypeError, ValueError):
            continue
    return False


def all_hold(conditions: Sequence[object], symbols: Symbols, sizes: Mapping[str, int]) -> bool:
    """Whether conditions are true at sizes of the axes as messages call them; one that cannot be evaluated is not."""
    point = {**sizes, **{one: sizes[axis.text] for one, axis in symbols.axes.items() if axis.text in sizes}}
    codes = [(python_code(one), symbol_names(one)) for one in conditions]
    return all(code is not None and holds_at(code, names, symbols, point) for code, names in codes)


def holds_at(code: Any, names: Sequence[str], symbols: Symbols, point: Mapping[str, int]) -> bool:
    """Whether the code of a condition is true at some sizes; where it cannot be evaluated, it is not."""
    try:
        return bool(eval(code, dict(FUNCTIONS), {name: symbols.value(name, point) for name in names}))
    except (ArithmeticError, KeyError, NameError, TypeError, ValueError):
        return False


def limit(points: Sequence[Point], expression: object, symbols: Symbols) -> str | None:
    """The limit that a guard of one axis is, `n >= 3`: false below a size, above one or at 0 only, whatever its form.

    Empty where it is such a limit between two sizes of which none in between was looked at; None where it is no limit.

    Args:
        points: sizes at which it is false.
        expression: its condition.
        symbols: what the condition's symbols are.
    """
    variables = {variable for name in symbol_names(expression) for variable in symbols.variables(name)}
    if len(variables) != 1 or not points:
        return None
    (variable,) = variables
    false = {point[variable] for point in points}
    name = symbols.text(variable)
    if false == {0}:
        return f"{name} != 0"
    turning = turning_sizes.of(expression)
    tried = [one[0] for one in _candidates([symbols.bounds(variable)], [None], turning) if one[0] > 0]
    turns = [(one, other) for one, other in itertools.pairwise(tried) if (one in false) != (other in false)]
    if len(turns) != 1:
        return None
    ((one, other),) = turns
    return "" if other != one + 1 else f"{name} >= {other}" if one in false else f"{name} <= {one}"


def fixes_number(expression: object) -> bool:
    """Whether a condition says what integer came of a conversion: the capture has it as a constant from there on."""
    if not isinstance(expression, sympy.Eq) or not any(side.is_number for side in expression.args):
        return False
    return any(type(part).__name__ in _CONVERSIONS for part in sympy.preorder_traversal(expression))
