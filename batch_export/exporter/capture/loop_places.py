"""Indices at the step's place, or beside it, in a loop of a model's code: `x[:, t]`, `x[t + 1]`, `x[..., t - 1, :]`.

Arrives: the source of an index. Leaves: the axis that the step goes along, how far beside it the place is, or by which
rule it goes (`x[:, t * 2]`, `x[n - 1 - t]`, `x[:, t : t + k]`), and what is indexed behind it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from batch_export.exporter.capture import step_numbers


@dataclass(frozen=True, slots=True)
class StepIndex:
    """An index of a named thing with the step in it.

    Attributes:
        of: the name.
        axis: which axis the step is an index of, from its end behind `...`.
        beside: how many places behind the step's, or, as source, a function of the step that gives the place, and the
            one behind the last place of a window.
        before: the indices before that one, all of them `:` or `...`.
        behind: the indices behind it.
        is_window: whether it is a window (`t : t + k`), which has the axis still.
        reads: the names by which its place goes besides.
    """

    of: str
    axis: int
    beside: int | str
    before: tuple[ast.expr, ...]
    behind: tuple[ast.expr, ...]
    is_window: bool = False
    reads: frozenset[str] = frozenset()

    @classmethod
    def of_node(cls, node: ast.Subscript, step: str) -> StepIndex | None:
        """What an index is; None of any other."""
        listed = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        found = ((place, beside) for place, one in enumerate(listed) if (beside := _beside(one, step)) is not None)
        place, beside = next(found, (None, 0))
        if place is None or not isinstance(node.value, ast.Name):
            return None
        before, behind = tuple(listed[:place]), tuple(listed[place + 1 :])
        if not all(_is_whole(one) or _is_rest(one) for one in before):
            return None
        names = {one.id for one in ast.walk(listed[place]) if isinstance(one, ast.Name)} - {step}
        told = isinstance(listed[place], ast.Slice), frozenset(names)
        if not any(map(_is_rest, before)):
            return cls(node.value.id, place, beside, before, behind, *told)
        axis = -1 - len(behind)
        return cls(node.value.id, axis, beside, before, behind, *told) if all(map(_is_whole, behind)) else None

    @property
    def is_all(self) -> bool:
        """Whether it is all that there is at its place."""
        return all(_is_whole(one) or _is_rest(one) for one in self.behind)

    @property
    def others(self) -> list[ast.expr]:
        """The other indices, `:` in place of a window."""
        return [*self.before, *([ast.Slice()] if self.is_window else []), *self.behind]


def _beside(node: ast.expr, step: str) -> int | str | None:
    """How many places behind the step's an index is, or the function that gives its place."""
    match node:
        case ast.Name(id=name) if name == step:
            return 0
        case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=ast.Constant(value=int(number))) if name == step:
            return number
        case ast.BinOp(left=ast.Name(id=name), op=ast.Sub(), right=ast.Constant(value=int(number))) if name == step:
            return -number
        case ast.BinOp(left=ast.Constant(value=int(number)), op=ast.Add(), right=ast.Name(id=name)) if name == step:
            return number
        case ast.Slice(lower=ast.expr() as begin, upper=ast.expr() as end, step=None):
            degrees = degree(begin, step), degree(end, step)
            return f"lambda {step}: ({ast.unparse(begin)}, {ast.unparse(end)})" if degrees == (1, 1) else None
    return f"lambda {step}: ({ast.unparse(node)}, None)" if degree(node, step) == 1 else None


def degree(node: ast.expr, step: str) -> int | None:
    """1 of what goes up or down by as much in each round, 0 of what stays, as far as the source says; None of others.

    Args:
        node: an expression.
        step: the loop's name for the step.
    """
    match node:
        case ast.Name(id=name):
            return int(name == step)
        case ast.Constant(value=int()):
            return 0
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return degree(operand, step)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            degrees = degree(left, step), degree(right, step)
            return None if None in degrees else max(one or 0 for one in degrees)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            degrees = degree(left, step), degree(right, step)
            return None if None in degrees or degrees == (1, 1) else max(one or 0 for one in degrees)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return 0 if (degree(left, step), degree(right, step)) == (0, 0) else None
    has_step = any(isinstance(one, ast.Name) and one.id == step for one in ast.walk(node))
    return 0 if not has_step and step_numbers.is_plain(node) else None


def is_last(node: ast.Subscript) -> bool:
    """Whether an index is -1."""
    match node.slice:
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)):
            return True
    return False


def _is_whole(index: ast.expr) -> bool:
    """Whether an index is `:`."""
    return isinstance(index, ast.Slice) and not (index.lower or index.upper or index.step)


def _is_rest(index: ast.expr) -> bool:
    """Whether an index is `...`."""
    return isinstance(index, ast.Constant) and index.value is ...
