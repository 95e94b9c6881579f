"""Guards: conditions on sizes under which a captured program holds, and whether they take anything away.

Arrives: a captured program and the axes that were asked for as dynamic. Leaves: one `Guard` for each condition that
torch added, in axis names, with the line of the model where it arose. Torch guards on far more than it has to (`8 * n
>= 16`, `(16 * n) // n == 16`), so a guard is evaluated at many sizes: one that is true everywhere is harmless, one that
is false somewhere may restrict the axes in it, which `guard_judging.py` finds out. Nothing is traced or run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.printers import PythonPrinter

from batch_export.exporter.capture import guard_points
from batch_export.exporter.capture.guard_sources import COUNTED
from batch_export.exporter.capture.guard_symbols import (
    FUNCTIONS,
    AskedAxis,
    Names,
    Symbols,
    places,
    python_code,
    symbol_names,
)

_UNLIMITED = 2**31
_DIVISIBLE = 2**10 * 3**3 * 5**2 * 7**2 * 11 * 13
"""A size that is a multiple of everything that models divide sizes by."""
_OFFSETS = 33


class _Printer(PythonPrinter):
    """Conditions as one would write them: `int(ceil(x))`, no conversions of numbers, few digits."""

    def _print_ToFloat(self, expression: sympy.Expr) -> str:  # noqa: N802  (as sympy calls them)
        return str(self._print(expression.args[0]))

    def _print_TruncToInt(self, expression: sympy.Expr) -> str:  # noqa: N802  (as sympy calls them)
        return f"int({self._print(expression.args[0])})"

    def _print_CeilToInt(self, expression: sympy.Expr) -> str:  # noqa: N802  (as sympy calls them)
        return f"ceil({self._print(expression.args[0])})"

    def _print_FloorToInt(self, expression: sympy.Expr) -> str:  # noqa: N802  (as sympy calls them)
        return f"floor({self._print(expression.args[0])})"

    def _print_Float(self, expression: sympy.Expr) -> str:  # noqa: N802  (as sympy calls them)
        return f"{float(expression):g}"


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition under which the captured program holds.

    Attributes:
        condition: readable, with axis names, e.g. `seq <= 8`.
        axes: the axes in it: a name, or `input.shape[axis]` where none was given.
        source: `file:line` where torch added it, empty when it is not known.
        restricts: whether it is false for some sizes that were asked for.
        is_limit: whether it restricts as a limit (`n >= 3`) beyond which the program fails, rather than give something
            else than the model.
        unites: the axes of different names that it makes one.
        holds_beyond: whether the program was seen to be right at sizes at which it is false.
        is_models: whether the model was seen to refuse sizes at which it is false, and to take none of them.
        fixes: axes (input and position) left to the exporter that it holds to a few sizes, such as the example's.
        narrows: axes left to the exporter that it takes some sizes from, all but some multiples among these.
        counts: whether Python made it by counting with a size (`range(n)`, `names[n]`), a number in every capture.
        reason: what made it, where that is not a comparison of torch's; empty elsewhere.
        expression: the condition in torch's symbols.
    """

    condition: str
    axes: tuple[str, ...] = ()
    source: str = ""
    restricts: bool = False
    is_limit: bool = False
    unites: tuple[str, ...] = ()
    holds_beyond: bool = False
    is_models: bool = False
    fixes: tuple[tuple[str, int], ...] = ()
    narrows: tuple[tuple[str, int], ...] = ()
    counts: bool = False
    reason: str = ""
    expression: sympy.Basic = field(default=None, compare=False, repr=False)

    @property
    def is_equality(self) -> bool:
        """Whether it says that two axes have one size."""
        expression = self.expression
        return isinstance(expression, sympy.Eq) and all(side.is_Symbol for side in expression.args)

    @property
    def fixes_size(self) -> bool:
        """Whether it says that something of the sizes is a number."""
        is_equality = isinstance(self.expression, sympy.Eq) and not self.reason
        return is_equality and any(side.is_number for side in self.expression.args)

    @property
    def fixes_number(self) -> bool:
        """Whether it says what came of a conversion to an integer, which the program has as a constant."""
        return guard_points.fixes_number(self.expression)


# Collecting -----------------------------------------------------------------------------------------------------------


PRIVATE = "_batch_export_private"
"""Where torch's environment of sizes keeps guards of one way through a model, which its own code does not print."""


def environment_of(program: torch.export.ExportedProgram) -> ShapeEnv | None:
    """Torch's environment of sizes of a program that was captured in this process."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor):
            environment = getattr(getattr(value, "fake_mode", None), "shape_env", None)
            if environment is not None:
                return environment  # type: ignore[no-any-return]
    return None


def _source(guard: Any) -> str:
    location = getattr(guard.sloc, "maybe_user_loc", None)
    return str(location) if location else ""


def collect(program: torch.export.ExportedProgram, symbols: Symbols | None) -> list[Guard]:
    """Every guard of the program, without repetition; those that may restrict an axis first.

    A guard may restrict when it is false for some sizes in the declared ranges, unless it only says what an axis
    without a name equals.

    Args:
        program: the captured program.
        symbols: the program's symbols in terms of the axes that were asked for, `symbols_of(program, ...)`.
    """
    environment = environment_of(program)
    if environment is None or symbols is None:
        codes = getattr(program, "_guards_code", None) or []
        return [Guard(str(code)) for code in dict.fromkeys(codes)] + _ranges(program, {}, Names(()), set())
    unique: dict[object, Any] = {}
    for guard in (*environment.guards, *vars(environment).get(PRIVATE, ())):
        known = unique.get(guard.expr)
        if known is None or (not _source(known) and _source(guard)):
            unique[guard.expr] = guard
    pending = [guard for guard in unique.values() if not symbols.solves(guard.expr)]
    counted = {guard.expr for guard in environment.guards if guard.sloc.framework_loc == COUNTED}
    found = [replace(_judge(guard.expr, _source(guard), symbols), counts=guard.expr in counted) for guard in pending]
    covered = {axis for guard in found for axis in guard.axes}
    found += _ranges(program, symbols.axes, symbols.names, covered)
    found = [guard for guard in found if guard.condition != "True"]
    return sorted(dict.fromkeys(found), key=lambda guard: not guard.restricts)


def sides_taken(program: torch.export.ExportedProgram, symbols: Symbols) -> list[Guard]:
    """What a capture that takes every free size for 2 or more holds to, which torch calls no guard: sizes of 0 and 1.

    Args:
        program: what was captured so (see `size_oblivious.py`).
        symbols: its symbols in terms of the axes that were asked for.
    """
    fakes = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    sizes: list[Any] = [size for fake in fakes if isinstance(fake, torch.Tensor) for size in fake.shape]
    free = [size.node.expr for size in sizes if isinstance(size, torch.SymInt)]
    known = {one for one in free if one.is_Symbol and str(one) in symbols.axes}
    found = [
        _judge(sympy.Ne(symbol, size, evaluate=False), "", symbols)
        for symbol in sorted(known, key=str)
        for size in (0, 1)
    ]
    return list({guard.condition: guard for guard in found}.values())  # axes of one name may be several symbols


def taken_as(
    program: torch.export.ExportedProgram, symbols: Symbols, held: Mapping[sympy.Basic, str], reason: str
) -> list[Guard]:
    """What Python took as it is in the example, of which torch has no guard, such as the text of a size.

    Args:
        program: the captured program.
        symbols: its symbols in terms of the axes that were asked for.
        held: conditions that hold at the example -> the line that relies on them.
        reason: what made them.
    """
    environment = environment_of(program)
    if environment is None:
        return []
    judged = [_judge(environment.replace(one), source, symbols) for one, source in held.items()]
    return [replace(guard, reason=reason) for guard in judged if guard.condition != "True"]


def symbols_of(
    program: torch.export.ExportedProgram, asked: Sequence[AskedAxis], aliases: Mapping[str, str]
) -> Symbols | None:
    """The symbols of a program that was captured in this process, in terms of the axes that were asked for.

    Args:
        program: the captured program.
        asked: the axes that were asked for.
        aliases: other ways in which torch names an input -> the way that `asked` uses.
    """
    environment = environment_of(program)
    return None if environment is None else symbol_table(environment, asked, aliases)


def symbol_table(environment: ShapeEnv, asked: Sequence[AskedAxis], aliases: Mapping[str, str]) -> Symbols:
    """Which axis each of torch's symbols stands for."""
    by_place = {(axis.where, axis.axis): axis for axis in asked}
    axes = {}
    for symbol, (place, axis) in places(environment).items():
        where = aliases.get(place, place)
        axes[symbol] = by_place.get((where, axis)) or AskedAxis(where, axis)
    return Symbols(axes, Names(asked))


def _judge(expression: Any, source: str, symbols: Symbols) -> Guard:
    names = symbol_names(expression)
    shown = expression.xreplace({symbol: sympy.Symbol(symbols.text(str(symbol))) for symbol in expression.free_symbols})
    try:
        condition = str(_Printer().doprint(shown))
    except Exception:
        condition = str(shown)
    axes = tuple(dict.fromkeys(symbols.text(name) for name in names))
    required = [symbols.axes[name] for name in names if name in symbols.axes and symbols.axes[name].required]
    limits = _is_false_somewhere(expression, names, symbols)
    restricts = bool(required) and limits
    free = [axis for name in names if (axis := symbols.axes.get(name)) is not None and not axis.required]
    left = tuple((axis.where, axis.axis) for axis in free if axis in symbols.names.asked)
    fixes = left if isinstance(expression, sympy.Eq) and left and not required else ()
    if fixes and _holds_at_large_sizes(expression, names, symbols):
        fixes = ()
    narrows = left if limits and not required and not fixes else ()
    return Guard(condition, axes, source, restricts, fixes=fixes, narrows=narrows, expression=expression)


def _is_false_somewhere(expression: object, names: Sequence[str], symbols: Symbols) -> bool:
    """Whether the guard is false at some size that is tried; one that cannot be computed counts as false somewhere."""
    if not all(name in symbols.axes for name in names):
        return False  # sizes that depend on the data are not an input's axes
    against = guard_points.against(expression, symbols, {})
    return against is None or bool(against)


def _holds_at_large_sizes(expression: object, names: Sequence[str], symbols: Symbols) -> bool:
    """Whether an equality holds for arbitrarily large sizes (`h % 16 == 0`), and not for a few only (`h * w == 64`)."""
    code = python_code(expression)
    if code is None or not all(name in symbols.axes for name in names):
        return True
    variables = sorted({variable for name in names for variable in symbols.variables(name)})
    offsets: Iterator[tuple[int, ...]] = itertools.product(range(_OFFSETS), repeat=min(2, len(variables)))
    for near in offsets:
        values = [_DIVISIBLE + near[min(index, len(near) - 1)] for index in range(len(variables))]
        by_variable = dict(zip(variables, values, strict=True))
        try:
            if eval(code, dict(FUNCTIONS), {name: symbols.value(name, by_variable) for name in names}):
                return True
        except (ArithmeticError, KeyError, NameError, ValueError):
            return True
    return False


def _ranges(
    program: torch.export.ExportedProgram, axes: Mapping[str, AskedAxis], names: Names, covered: set[str]
) -> list[Guard]:
    """Ranges narrower than what was asked for that no guard above accounts for."""
    found: list[Guard] = []
    for symbol, bounds in program.range_constraints.items():
        axis = axes.get(str(symbol))
        if not isinstance(symbol, sympy.Symbol) or (axes and axis is None):
            continue
        text = axis.text if axis is not None else str(symbol)
        low, high = names.bounds.get(axis.name, (axis.lowest, axis.highest)) if axis is not None else (0, None)
        required = axis is not None and axis.required
        if text in covered:
            continue
        if bounds.upper.is_Integer and int(bounds.upper) < min(high or _UNLIMITED, _UNLIMITED):
            expression = sympy.Le(symbol, bounds.upper)
            found.append(Guard(f"{text} <= {int(bounds.upper)}", (text,), "", required, expression=expression))
        if bounds.lower.is_Integer and int(bounds.lower) > max(2, low):
            expression = sympy.Ge(symbol, bounds.lower)
            found.append(Guard(f"{text} >= {int(bounds.lower)}", (text,), "", required, expression=expression))
    return found


def axes_of_symbols(
    environment: ShapeEnv, asked: Sequence[AskedAxis], aliases: Mapping[str, str]
) -> dict[str, AskedAxis]:
    """Torch's symbol -> the axis of an input that it is the size of, as it was asked for."""
    return symbol_table(environment, asked, aliases).axes


def fixed_sizes(
    environment: ShapeEnv | None, asked: Sequence[AskedAxis], aliases: Mapping[str, str], *, with_left: bool = False
) -> list[tuple[AskedAxis, int, str]]:
    """Axes that had to stay dynamic and that a capture made constant: the axis, its size, and where (`file:line`).

    Args:
        environment: torch's environment of sizes.
        asked: the axes that were asked for.
        aliases: other ways in which torch names an input -> the way that `asked` uses.
        with_left: axes that were left to the exporter as well.
    """
    if environment is None:
        return []
    symbols = symbol_table(environment, asked, aliases)
    found: dict[str, tuple[AskedAxis, int, str]] = {}
    sizes: dict[str, int] = {}
    for guard in [*environment.guards, *environment.guards]:  # twice: an equality may come before the size it leads to
        expression = guard.expr.xreplace({s: sizes[str(s)] for s in guard.expr.free_symbols if str(s) in sizes})
        if not isinstance(expression, sympy.Eq):
            continue
        for left, right in ((expression.lhs, expression.rhs), (expression.rhs, expression.lhs)):
            if isinstance(left, sympy.Symbol) and right.is_Integer:
                sizes[str(left)] = int(right)
                axis = symbols.axes.get(str(left))
                if axis is not None and (axis.required or with_left):
                    found.setdefault(str(left), (axis, int(right), _source(guard)))
    lines = getattr(environment, "replacements_slocs", {})
    for symbol, value in environment.replacements.items():  # what guards led to, such as `n <= 2` of a size from 2 on
        axis = symbols.axes.get(str(symbol))
        if axis is not None and (axis.required or with_left) and value.is_Integer:
            line = str(getattr(lines.get(symbol), "maybe_user_loc", None) or "")
            found.setdefault(str(symbol), (axis, int(value), line))
    return list(found.values())
