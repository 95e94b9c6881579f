"""Symbols of a captured program in terms of the axes that were asked for, and sizes to try them with.

Arrives: torch's environment of sizes, and axes with their names and ranges. Leaves: the value of each symbol when the
named axes have given sizes. The name of a derived axis is an expression of names (`2*batch`, `past+seq`); any other
name is a word, whatever it looks like.
"""

from __future__ import annotations

import ast
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, SimpleNamespace
from typing import Any

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.printers import PythonPrinter

_PLAIN = {"max": max, "min": min, "abs": abs, "int": int, "float": float, "round": round}
_UNARY = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "exp", "log", "log2", "asinh")
_TORCH = SimpleNamespace(sym_float=float, sym_int=int, **{f"_sym_{name}": getattr(math, name) for name in _UNARY})
FUNCTIONS: Mapping[str, object] = {
    "__builtins__": _PLAIN,
    "math": math,
    "torch": _TORCH,
    "Where": lambda condition, then, otherwise: then if condition else otherwise,
    **{f"OpaqueUnaryFn_{name}": getattr(math, name) for name in _UNARY},
}
"""What the code of an expression may call."""


@dataclass(frozen=True, slots=True)
class AskedAxis:
    """One axis of one input as the caller asked for it.

    Attributes:
        where: the input as torch's guards write it, e.g. `['x']` or `['cache'][0]`.
        axis: its position.
        name: the name asked for, empty for none.
        required: whether it must stay dynamic (a name or `Dim.DYNAMIC`, but not `Dim.AUTO`).
        lowest, highest: declared range.
        derived: whether the name is an expression (`2*batch`) that relates it to other names.
    """

    where: str
    axis: int
    name: str = ""
    required: bool = False
    lowest: int = 0
    highest: int | None = None
    derived: bool = False

    @property
    def text(self) -> str:
        """The name, or the place."""
        return self.name or f"{readable(self.where)}.shape[{self.axis}]"


def readable(where: str) -> str:
    """`x` for `['x']`, `cache[0]` for `['cache'][0]`."""
    return re.sub(r"^\['([^']+)'\]", r"\1", where)


_SIZE = re.compile(r"^L(?P<where>.+)\.size\(\)\[(?P<axis>\d+)\]$")


def places(environment: ShapeEnv) -> dict[str, tuple[str, int]]:
    """Symbol -> the input and axis that torch read it from, as torch's sources name them."""
    found: dict[str, tuple[str, int]] = {}
    table = getattr(environment, "var_to_sources", None) or {}
    for symbol, sources in table.items():
        for source in sources:
            name = source.name() if callable(source.name) else source.name
            matched = _SIZE.match(str(name))
            if matched:
                found.setdefault(str(symbol), (matched["where"], int(matched["axis"])))
    return found


class Names:
    """Values of axes by name: a plain name is a variable, an expression of names is computed from them."""

    def __init__(self, asked: Sequence[AskedAxis]) -> None:
        self.asked = frozenset(asked)
        self.expressions: dict[str, tuple[CodeType, frozenset[str]] | None] = {}
        self.bounds: dict[str, tuple[int, int | None]] = {}
        for axis in asked:
            if axis.name:
                self.expressions.setdefault(axis.name, _arithmetic(axis.name) if axis.derived else None)
                low, high = self.bounds.get(axis.name, (0, None))
                limits = [limit for limit in (high, axis.highest) if limit is not None]
                self.bounds[axis.name] = (max(low, axis.lowest), min(limits) if limits else None)

    def unite(self, name: str, other: str) -> None:
        """From now on the first name has the size of the second one."""
        while (known := self.expressions.get(other)) is not None:  # united before
            (other,) = known[1] or (other,)
        if name != other:
            self.expressions[name] = (compile(other, "<axis>", "eval"), frozenset([other]))

    def variables(self, name: str) -> frozenset[str]:
        expression = self.expressions.get(name)
        if expression is None:
            return frozenset([name])
        return frozenset(variable for other in expression[1] for variable in self.variables(other))

    def value(self, name: str, values: Mapping[str, int]) -> int:
        expression = self.expressions.get(name)
        if expression is None:
            return values[name]
        return int(eval(expression[0], {}, {other: self.value(other, values) for other in expression[1]}))

    def root(self, name: str, size: int, values: Mapping[str, int]) -> dict[str, int]:
        """The one name without a value in an axis of some size, with its own; nothing where none or several are."""
        missing = sorted(self.variables(name) - values.keys())
        if len(missing) != 1:
            return {}
        nothing, one = (self.value(name, {**values, missing[0]: number}) for number in (0, 1))
        step = one - nothing  # torch's expressions are linear
        return {missing[0]: (size - nothing) // step} if step else {}


def _arithmetic(name: str) -> tuple[CodeType, frozenset[str]] | None:
    """A name such as `2*batch + 1` as code over the names in it; None for a plain name."""
    try:
        tree = ast.parse(name, mode="eval")
    except SyntaxError:
        return None
    allowed = (ast.Expression, ast.BinOp, ast.Name, ast.Load, ast.Constant, ast.operator)
    if isinstance(tree.body, ast.Name) or not all(isinstance(part, allowed) for part in ast.walk(tree)):
        return None
    names = frozenset(part.id for part in ast.walk(tree) if isinstance(part, ast.Name))
    return (compile(tree, "<axis>", "eval"), names) if names else None


@dataclass(slots=True)
class Symbols:
    """How to find the size that a symbol stands for when the named axes have given sizes."""

    axes: dict[str, AskedAxis]
    names: Names
    solved: dict[str, tuple[CodeType, tuple[str, ...]]] = field(default_factory=dict)

    def variable(self, symbol: str) -> str | None:
        """The axis whose size a symbol is; None where it is computed from others."""
        if symbol in self.solved:
            return None
        axis = self.axes.get(symbol)
        if axis is None or not axis.name:
            return symbol
        return axis.name if self.names.expressions.get(axis.name) is None else None

    def variables(self, symbol: str) -> frozenset[str]:
        """The axes that a symbol depends on: names, and torch's symbols of axes without one."""
        if symbol in self.solved:
            return frozenset(name for other in self.solved[symbol][1] for name in self.variables(other))
        axis = self.axes.get(symbol)
        if axis is not None and axis.name:
            return self.names.variables(axis.name)
        return frozenset([symbol])

    def value(self, symbol: str, values: Mapping[str, int]) -> int:
        """The size that a symbol has when the axes have given sizes."""
        if symbol in self.solved:
            code, others = self.solved[symbol]
            return int(eval(code, dict(FUNCTIONS), {other: self.value(other, values) for other in others}))
        axis = self.axes.get(symbol)
        if axis is not None and axis.name:
            return self.names.value(axis.name, values)
        return values[symbol]

    def bounds(self, variable: str) -> tuple[int, int | None]:
        axis = self.axes.get(variable)
        return (axis.lowest, axis.highest) if axis is not None else self.names.bounds.get(variable, (0, None))

    def lowest(self, symbol: str) -> int:
        """The smallest size that the axis of a symbol may have, as it was declared."""
        axis = self.axes.get(symbol)
        return 0 if axis is None else axis.lowest

    def text(self, symbol: str) -> str:
        axis = self.axes.get(symbol)
        return axis.text if axis is not None else symbol

    def solves(self, expression: object, *, named: bool = False) -> bool:
        """Whether an equality only says what the size of one axis is; the axis is then computed from the others.

        Args:
            expression: a condition.
            named: whether the axis may have a name, which no other axis has.
        """
        if not isinstance(expression, sympy.Eq):
            return False
        difference = expression.lhs - expression.rhs
        for symbol in sorted(expression.free_symbols, key=str):
            factor = difference.coeff(symbol)
            rest = difference - factor * symbol
            if factor not in (1, -1) or rest.has(symbol) or not self._may_be_solved(str(symbol), named):
                continue
            others = symbol_names(rest)
            axis = self.axes.get(str(symbol))
            if (not others and axis is not None and axis.required) or any(
                str(symbol) == other or self.variable(str(symbol)) in self.variables(other) for other in others
            ):
                continue
            code = python_code(-rest / factor)
            if code is not None:
                self.solved[str(symbol)] = (code, others)
                return True
        return False

    def _may_be_solved(self, symbol: str, named: bool) -> bool:
        axis = self.axes.get(symbol)
        if symbol in self.solved:
            return False
        if axis is None or not axis.name:
            return True
        return named and [one.name for one in self.axes.values()].count(axis.name) == 1


def evaluated(code: CodeType, sizes: Mapping[str, int]) -> Any:
    """What an expression is at some sizes.

    Args:
        code: the expression's, by `python_code`.
        sizes: symbol -> its size.
    """
    return eval(code, dict(FUNCTIONS), dict(sizes))


def python_function(expression: object, names: Sequence[str]) -> Callable[..., Any] | None:
    """A condition as a function of the sizes of its symbols; None where it has no Python form.

    Args:
        expression: the condition.
        names: its symbols, in the order of the arguments.
    """
    body = _printed(expression)
    try:
        made: Callable[..., Any] = eval(f"lambda {', '.join(names)}: {body}", dict(FUNCTIONS))
    except SyntaxError:
        return None
    return made


def python_code(expression: object) -> CodeType | None:
    try:
        return compile(_printed(expression), "<guard>", "eval")
    except SyntaxError:
        return None


@functools.lru_cache(maxsize=4096, typed=True)
def _printed(expression: object) -> str:
    """An expression in Python's words; empty where the printer refuses it."""
    try:
        return str(PythonPrinter().doprint(expression))
    except Exception:  # of whatever kind: it has no Python form
        return ""


def symbol_names(expression: Any) -> tuple[str, ...]:
    return tuple(sorted(str(symbol) for symbol in expression.free_symbols))
