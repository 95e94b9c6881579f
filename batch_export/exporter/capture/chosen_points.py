"""Which of the sizes at which a guard is false are tried.

Arrives: sizes by axis, as `guard_points.against` gives them, often thousands. Leaves: a few of them, near the example
and far from it, at which something that the guard takes away would show. Nothing is run.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence

import sympy
from sympy.core.relational import Relational

from batch_export.exporter.capture.guard_points import Point, fixes_number, holds_at
from batch_export.exporter.capture.guard_symbols import Symbols, python_code, python_function, symbol_names

_FAR = (2, 5)
_WHOLE = 3
"""How many sizes are tried at which a fraction is whole."""
_ASKED, _KINDS = 6, 6
"""How many questions of one condition are told apart, and at how many sizes that answer them otherwise it is tried."""
_MOST = 4000
"""At how many sizes these questions are answered."""
_EMPTY = 3
"""How many sizes without elements are tried."""
_FURTHER = (2, 5, 20, 100)
"""How many times as long as the example's axes those are that stand for larger sizes."""
_LOOKED_AT = 400
"""Sizes at which other conditions are evaluated too."""


def likely(
    points: Sequence[Point], others: Sequence[object], symbols: Symbols, example: Mapping[str, int]
) -> list[Point]:
    """Those of many sizes that a model is more likely to take: multiples of the example's, and where other guards hold.

    Args:
        points: sizes at which one guard is false.
        others: further conditions of the same program.
        symbols: what their symbols are.
        example: axis -> its size in the example.
    """
    multiples = [
        point
        for point in points
        if all(size and size % example.get(axis, size) == 0 for axis, size in point.items() if example.get(axis, size))
    ]
    codes = [(code, symbol_names(one)) for one in others if (code := python_code(one)) is not None]
    held = [
        point for point in points[:_LOOKED_AT] if all(holds_at(*one, symbols, {**example, **point}) for one in codes)
    ]
    return [*choose(multiples, example, 4), *choose(held, example, 4)]


def of_each_digit(points: Sequence[Point]) -> list[Point]:
    """Small sizes of one axis, one for each last digit: text is looked at by its characters."""
    found: dict[int, Point] = {}
    for point in points:
        (size,) = point.values() if len(point) == 1 else (0,)
        if size > 1:
            found.setdefault(size % 10, point)
    return list(found.values())


def far_of(expression: object) -> Sequence[int]:
    """How many times as long as in the example axes have to be before a guard shows what it takes away.

    A number that was converted from sizes (`int(x.shape[1] * 1.3)`) is a constant of the capture, whatever the model
    does with it: it may be a limit that much larger sizes reach first.
    """
    return _FURTHER if fixes_number(expression) else _FAR


def whole(points: Sequence[Point], expression: object) -> list[Point]:
    """Those of many sizes at which a fraction that a guard takes for a constant is a whole number, a few of them.

    What a model asks of a fraction (`(n / 7).is_integer()`, `int(n / 7) == n / 7`) is answered otherwise there alone.
    """
    if not isinstance(expression, sympy.Eq) or not any(isinstance(side, sympy.Float) for side in expression.args):
        return []
    numbers = {int(one) for one in expression.atoms(sympy.Integer)} - {-1, 0, 1}
    return [one for one in points if any(size and size % number == 0 for size in one.values() for number in numbers)][
        :_WHOLE
    ]


def of_each_kind(
    points: Sequence[Point], expression: object, symbols: Symbols, example: Mapping[str, int]
) -> list[Point]:
    """Of sizes at which a compound condition is false one for each way in which it is, the nearest to the example.

    `not (n == m and n <= 2 or n > 2 and n != m)` is false at small sizes that are alike and at large ones that are not.

    Args:
        points: the sizes.
        expression: the condition.
        symbols: what its symbols are.
        example: axis -> its size in the example.
    """
    asked = sorted(expression.atoms(Relational), key=str)[:_ASKED] if isinstance(expression, sympy.Basic) else []
    if len(asked) < 2:
        return []
    functions = [(names, python_function(one, names)) for one in asked for names in [symbol_names(one)]]
    near = sorted(
        (point for point in points if 0 not in point.values()),
        key=lambda point: sum(abs(size - example.get(axis, size)) for axis, size in point.items()),
    )
    found: dict[tuple[bool, ...], Point] = {}
    for point in near[:: 1 + len(near) // _MOST]:
        with contextlib.suppress(ArithmeticError, KeyError, NameError, TypeError, ValueError):
            sizes = {name: symbols.value(name, {**example, **point}) for names, _ in functions for name in names}
            answers = tuple(
                bool(holds(*(sizes[name] for name in names))) for names, holds in functions if holds is not None
            )
            found.setdefault(answers, point)
    return list(found.values())[:_KINDS]


def choose(points: Sequence[Point], example: Mapping[str, int], count: int, far: Sequence[int] = _FAR) -> list[Point]:
    """A few of many sizes: the smallest, the nearest to the example on either side, and some spread over the rest.

    Two of them are far above the example: a number that a capture took for a constant often shows there only
    (`x[:, :int(x.shape[1] * 1.3)]` is the whole of a shorter x). Sizes at which few axes differ from the example come
    first: what differs there is the guard's doing. Those with an axis of no elements come last: one for each of a few
    axes, since with all of them empty there is nothing to differ.
    """

    def strangeness(point: Point) -> tuple[int, int]:
        others = [(size, example.get(axis, size)) for axis, size in point.items()]
        return (sum(size != there for size, there in others), sum(abs(size - there) for size, there in others))

    empty = [point for point in points if 0 in point.values()]
    full = sorted((point for point in points if 0 not in point.values()), key=strangeness)
    sides: dict[bool, list[Point]] = {True: [], False: []}
    for one in full:
        sides[sum(one.values()) < sum(example.get(axis, 0) for axis in one)].append(one)
    below, above = sides[True], sides[False]
    fewest = min((strangeness(one)[0] for one in full), default=0)
    smallest = sorted((one for one in full if strangeness(one)[0] == fewest), key=lambda one: sum(one.values()))
    wanted = [*smallest[:1], *below[:1], *above[:1]]
    wanted += [one for times in far for one in _far(above, example, times)]
    wanted += [*smallest[1:2], *above[1:2], *below[1:2]]
    step = max(1, len(full) // count)
    wanted += full[::step]
    chosen: list[Point] = []
    for point in wanted:
        if point not in chosen:
            chosen.append(point)
    return [*chosen[: count + len(far) - len(_FAR)], *_empty(empty, example)]


def _empty(points: Sequence[Point], example: Mapping[str, int]) -> list[Point]:
    """Sizes with as few axes without elements as may be: for each of a few such axes the nearest to the example."""
    nearest: dict[tuple[str, ...], Point] = {}
    for point in sorted(points, key=lambda one: sum(abs(size - example.get(axis, size)) for axis, size in one.items())):
        nearest.setdefault(tuple(sorted(axis for axis, size in point.items() if size == 0)), point)
    return [nearest[axes] for axes in sorted(nearest, key=len)[:_EMPTY]]


def _far(points: Sequence[Point], example: Mapping[str, int], times: int) -> list[Point]:
    """The first of some sizes that has an axis some times as long as the example's."""
    found = (
        one for one in points if any(size >= times * max(2, example.get(axis, size)) for axis, size in one.items())
    )
    return list(itertools.islice(found, 1))
