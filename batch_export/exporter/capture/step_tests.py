"""Tests of a loop's step that hold in its first round only, or in all others (`if t == 0:`, `if t > 0:`, `if not t:`).

Arrives: the source of a test, and where the loop begins. Leaves: which of the two it is; None for other tests.
"""

from __future__ import annotations

import ast

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
"""A comparison -> the same with its sides changed."""
_OF_FIRST: dict[tuple[type[ast.cmpop], int], bool] = {
    (ast.Eq, 1): True,
    (ast.Eq, -1): True,
    (ast.NotEq, 1): False,
    (ast.NotEq, -1): False,
    (ast.LtE, 1): True,
    (ast.Gt, 1): False,
    (ast.GtE, -1): True,
    (ast.Lt, -1): False,
}
"""A comparison of the step with the first one, and the loop's way -> whether it holds in the first round only."""


def holds_first(node: ast.expr, step: str, first: ast.expr, way: int) -> bool | None:
    """Whether a test holds in a loop's first round only; False where it holds in all others only.

    Args:
        node: the test.
        step: the loop's name for the step.
        first: the first step.
        way: 1 or -1: to which side the loop goes on.
    """
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = holds_first(operand, step, first, way)
            return None if inner is None else not inner
        case ast.Name(id=name) if name == step:
            return False if way == 1 and _number(first) == 0 else None
        case ast.Compare(left=ast.Name(id=name), ops=[operator], comparators=[other]) if name == step:
            return _compared(type(operator), other, first, way)
        case ast.Compare(left=other, ops=[operator], comparators=[ast.Name(id=name)]) if name == step:
            turned = _TURNED.get(type(operator))
            return None if turned is None else _compared(turned, other, first, way)
    return None


def _compared(operator: type[ast.cmpop], other: ast.expr, first: ast.expr, way: int) -> bool | None:
    if ast.dump(other) == ast.dump(first):
        return _OF_FIRST.get((operator, way))
    begin, number = _number(first), _number(other)
    if way == 1 and begin is not None and number == begin + 1:
        return {ast.Lt: True, ast.GtE: False}.get(operator)
    return None


def _number(node: ast.expr) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None
