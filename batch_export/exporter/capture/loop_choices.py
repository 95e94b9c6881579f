"""An `if` of a loop's round by its step (`if t % 2 == 0:`, `if t < n - 1:`): both sides are computed, and one is taken.

Arrives: the source of a test, or of a choice. Leaves: the test with a tensor in place of the step, and statements that
give the names what the side that holds gives them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from batch_export.exporter.capture import step_numbers

CHOSEN, NOT = "__chosen_in_a_loop__", "__not_in_a_loop__"
"""What a round calls: one of two values, and whether a test does not hold."""


def as_tensor(
    test: ast.expr, is_number: Callable[[ast.expr], bool], counted: Callable[[ast.expr], ast.expr], first: str
) -> ast.expr | None:
    """A test by the step as an expression that gives a tensor; None of other tests.

    Args:
        test: the test.
        is_number: whether an expression is a whole number, which the step may be a part of.
        counted: gives such a number with the step's tensor in the place of the step.
        first: the name that says whether a round is the first one.
    """

    def made(node: ast.expr) -> ast.expr | None:
        match node:
            case ast.Name(id=name) if name == first:
                return node
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = made(operand)
                return None if inner is None else ast.Call(ast.Name(NOT, ast.Load()), [inner], [])
            case ast.BoolOp(op=operator, values=values):
                parts = [made(one) for one in values]
                known = [one for one in parts if one is not None]
                both: ast.operator = ast.BitAnd() if isinstance(operator, ast.And) else ast.BitOr()
                joined = known[0] if known else None
                for one in known[1:]:
                    assert joined is not None
                    joined = ast.BinOp(joined, both, one)
                return joined if len(known) == len(parts) else None
            case ast.Compare(left=left, ops=[operator], comparators=[right]) if is_number(left) and is_number(right):
                is_followed = isinstance(operator, step_numbers.COMPARING)
                return ast.Compare(counted(left), [operator], [counted(right)]) if is_followed else None
        return ast.Compare(counted(node), [ast.NotEq()], [ast.Constant(0)]) if is_number(node) else None

    return made(test)


def is_safe(parts: Sequence[ast.AST], step: str) -> bool:
    """Whether something may be computed in rounds that do not take it: no whole number is divided by the step."""
    divided = (one for part in parts for one in ast.walk(part) if isinstance(one, ast.BinOp))
    by = (one.right for one in divided if isinstance(one.op, (ast.FloorDiv, ast.Mod)))
    return not any(isinstance(each, ast.Name) and each.id == step for one in by for each in ast.walk(one))


def names_given(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that statements give values."""
    names = (one for each in statements for one in ast.walk(each) if isinstance(one, ast.Name))
    return {one.id for one in names if not isinstance(one.ctx, ast.Load)}


def both_sides(
    test: ast.expr, sides: Sequence[Sequence[ast.stmt]], names: Collection[str], known: Collection[str], number: int
) -> list[ast.stmt]:
    """Statements that run both sides of a choice, and give the names what the one gives them that holds.

    Args:
        test: a test that gives a tensor.
        sides: the statements where it holds, and where it does not.
        names: those that get a value.
        known: names that have a value before.
        number: tells the choices of a round apart.
    """
    before = [name for name in sorted(names) if name in known]
    holds = f"__test_{number}__"
    made: list[ast.stmt] = [ast.Assign([ast.Name(holds, ast.Store())], test)]
    made += [_assigned(f"__before_{number}_{name}__", name) for name in before]
    made += sides[0]
    made += [_assigned(f"__then_{number}_{name}__", name) for name in sorted(names)]
    made += [_assigned(name, f"__before_{number}_{name}__") for name in before]
    made += sides[1]
    chosen = "\n".join(f"{name} = {CHOSEN}({holds}, __then_{number}_{name}__, {name})" for name in sorted(names))
    return [*made, *ast.parse(chosen).body]


def chosen(test: Any, one: Any, other: Any) -> Any:
    """The first of two values where a test holds, otherwise the second one.

    Raises:
        ValueError: they are not alike, so that no tensor is either.
    """
    if not isinstance(test, Tensor):  # a round is tried at Python's number: of a free size either will do
        return one if isinstance(test, torch.SymBool) or test else other
    if type(one) is tuple and type(other) is tuple and len(one) == len(other):
        return tuple(chosen(test, *each) for each in zip(one, other, strict=True))
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        if type(one) is type(other) and one == other:
            return one
        raise ValueError("an `if` by the step gives a name things of different kinds")
    if one.dtype != other.dtype or list(one.shape) != list(other.shape):
        raise ValueError("an `if` by the step gives a name tensors of different shapes or dtypes")
    return torch.where(test, one, other)


def does_not_hold(test: Any) -> Any:
    """`not test` of a tensor, too."""
    if isinstance(test, bool):
        return not test
    return ~test if isinstance(test, Tensor) else torch.sym_not(test)


def _assigned(name: str, value: str) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], ast.Name(value, ast.Load()))
