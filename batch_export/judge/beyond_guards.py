"""Sizes beyond a condition that the captured program holds under: guards as text and sizes in, the broken guard out.

Guards are written for people (`(63 + seq) // 64 == 1`, `frames != 2`). Only whole numbers, names of axes, arithmetic
and comparisons are read; a guard that says anything else is taken to hold. Nothing is executed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def broken(guards: Sequence[str], sizes: Mapping[str, int]) -> str:
    """Returns the first guard that is false at these sizes of axes; empty where none is."""
    for guard in guards:
        try:
            if not _value(ast.parse(guard, mode="eval").body, sizes):
                return guard
        except (SyntaxError, KeyError, ZeroDivisionError):  # of something else than axes, or not said of sizes
            continue
    return ""


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    """The value of an expression; raises KeyError for what is no name of an axis and no operator here."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.UnaryOp(op=sign, operand=part):
            return int(_OPERATORS[type(sign)](_value(part, sizes)))
        case ast.BinOp(left=left, op=sign, right=right):
            return int(_OPERATORS[type(sign)](_value(left, sizes), _value(right, sizes)))
        case ast.BoolOp(op=ast.And(), values=parts):
            return int(all([_value(part, sizes) for part in parts]))
        case ast.BoolOp(op=ast.Or(), values=parts):
            return int(any([_value(part, sizes) for part in parts]))
        case ast.Compare(left=left, ops=signs, comparators=others):
            sides = [_value(part, sizes) for part in (left, *others)]
            pairs = zip(signs, sides, sides[1:], strict=False)
            return int(all([_OPERATORS[type(sign)](one, other) for sign, one, other in pairs]))
    raise KeyError(ast.unparse(node))
