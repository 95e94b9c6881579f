"""Arithmetic with the step of a loop (`row * i`, `h + x[i] * 0.9 ** (n - i)`) in a model's code.

Arrives: the source of an expression. Leaves: whether it is a tensor, or a number that the step is a part of, of which a
tensor of one number gives the same: a whole one, or a fraction, which Python computes in double precision. What stands
under other names and is the same in all rounds has to turn out to be a number when the model runs.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

TENSOR, NUMBER, FRACTION = "a tensor", "a whole number", "a number"
_WHOLE = (ast.Add, ast.Sub, ast.Mult)
_FRACTIONS = (*_WHOLE, ast.Div, ast.Pow)
_ROUNDED = (ast.FloorDiv, ast.Mod)
COMPARING = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
GIVE_TENSORS = frozenset(
    (
        *("abs", "exp", "log", "sin", "cos", "tanh", "sigmoid", "relu", "softmax", "log_softmax", "sqrt", "square"),
        *("neg", "pow", "clamp", "float", "double", "mean", "sum", "prod", "cumsum", "cumprod", "norm", "matmul"),
        *("unsqueeze", "squeeze", "reshape", "view", "flatten", "transpose", "permute", "expand", "repeat", "t"),
        *("contiguous", "clone", "detach", "flip", "mul", "add", "sub", "div", "mm", "bmm", "masked_fill"),
    )
)
"""Methods of tensors that give one tensor whatever they are called with."""


def kind(
    node: ast.expr, step: str, is_tensor: Callable[[ast.expr], bool], may_be_number: Callable[[ast.expr], bool]
) -> str | None:
    """What an expression is; None where that is not known.

    Args:
        node: the expression.
        step: the loop's name for the step.
        is_tensor: says of a name, an index or a call whether it stands for a tensor.
        may_be_number: whether something is the same in all rounds.
    """
    match node:
        case ast.Constant(value=value):
            return {int: NUMBER, float: FRACTION}.get(type(value))
        case ast.Name(id=name) if name == step:
            return NUMBER
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return kind(operand, step, is_tensor, may_be_number)
        case ast.BinOp(left=left, op=operator, right=right):
            sides = [kind(one, step, is_tensor, may_be_number) for one in (left, right)]
            if isinstance(operator, _ROUNDED):
                return NUMBER if sides == [NUMBER, NUMBER] else None
            if None in sides or not isinstance(operator, _FRACTIONS):
                return None
            if TENSOR in sides:
                is_followed = isinstance(operator, _WHOLE) or (isinstance(operator, ast.Div) and sides[0] is TENSOR)
                return TENSOR if is_followed else None
            return NUMBER if sides == [NUMBER, NUMBER] and isinstance(operator, _WHOLE) else FRACTION
    if is_tensor(node):
        return TENSOR
    return NUMBER if is_plain(node) and may_be_number(node) else None


def may_be_beside(operator: ast.operator, *, is_right: bool) -> bool:
    """Whether a number may stand beside a tensor in such arithmetic.

    Args:
        operator: the arithmetic.
        is_right: whether the number stands behind it.
    """
    return isinstance(operator, _WHOLE) or (isinstance(operator, ast.Div) and is_right)


def is_plain(node: ast.expr) -> bool:
    """Whether something is a name, an attribute, a size."""
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=value) | ast.Subscript(value=ast.Attribute(attr="shape", value=value)):
            return is_plain(value)
        case ast.Call(func=ast.Attribute(attr="size", value=value), args=[_], keywords=[]):
            return is_plain(value)
        case ast.Call(func=ast.Name(id="len"), args=[value], keywords=[]):
            return is_plain(value)
    return False


def unknown(node: ast.expr, step: str) -> Iterator[ast.expr]:
    """What has to turn out to be numbers."""
    match node:
        case ast.BinOp(left=left, right=right):
            yield from unknown(left, step)
            yield from unknown(right, step)
        case ast.UnaryOp(operand=operand):
            yield from unknown(operand, step)
        case ast.Constant():
            return
        case ast.Name(id=name) if name == step:
            return
        case _:
            yield node


def as_tensor(node: ast.expr, step: str, name: str) -> ast.expr:
    """A number with a name in place of the step."""
    made = copy.deepcopy(node)
    for one in ast.walk(made):
        if isinstance(one, ast.Name) and one.id == step:
            one.id = name
    return made


def scaled(number: Callable[[Tensor], Any], count: Any, beside: Any, is_fraction: bool, others: Sequence[Any]) -> Any:
    """A number that goes by the step, as a tensor beside another one, which keeps its dtype as beside Python's number.

    Args:
        number: gives it of the step.
        count: the step.
        beside: the tensor that it goes into.
        is_fraction: whether it is no whole number by what is written.
        others: the numbers that it is made of besides.

    Raises:
        TypeError: what it goes into is no tensor.
    """
    if not isinstance(count, Tensor):
        return number(count)  # tried at Python's number
    if not isinstance(beside, Tensor):
        raise TypeError("a number that goes by the step of a loop stands beside something that is no tensor")
    if not is_fraction and not any(isinstance(one, (float, torch.SymFloat)) for one in others):
        return number(count)
    made = number(count.double())
    return made.to(beside.dtype if beside.is_floating_point() else torch.get_default_dtype())
