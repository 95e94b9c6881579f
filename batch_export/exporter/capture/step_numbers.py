"""Arithmetic with the step of a loop (`row * i`, `h + x[i] * (i + 1)`) in a model's code.

Arrives: the source of an expression. Leaves: whether it is a tensor, or a whole number that the step is a part of, of
which a tensor of one whole number gives the same; and such a number as that tensor. Fractions and numbers under other
names are not followed: they may have more digits than a tensor of them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable

TENSOR, NUMBER = "a tensor", "a whole number"
_WHOLE = (ast.Add, ast.Sub, ast.Mult)


def kind(node: ast.expr, step: str, is_tensor: Callable[[ast.expr], bool]) -> str | None:
    """What an expression is; None where that is not known.

    Args:
        node: the expression.
        step: the loop's name for the step.
        is_tensor: says of a name or an index whether it stands for a tensor.
    """
    match node:
        case ast.Constant(value=value):
            return NUMBER if type(value) is int else None
        case ast.Name(id=name) if name == step:
            return NUMBER
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return kind(operand, step, is_tensor)
        case ast.BinOp(left=left, op=operator, right=right):
            sides = kind(left, step, is_tensor), kind(right, step, is_tensor)
            if None in sides or not isinstance(operator, (*_WHOLE, ast.Div)):
                return None
            if isinstance(operator, ast.Div):
                return TENSOR if sides[0] is TENSOR else None
            return TENSOR if TENSOR in sides else NUMBER
    return TENSOR if is_tensor(node) else None


def as_tensor(node: ast.expr, step: str, name: str) -> ast.expr:
    """A whole number with a name in place of the step."""
    made = copy.deepcopy(node)
    for one in ast.walk(made):
        if isinstance(one, ast.Name) and one.id == step:
            one.id = name
    return made
