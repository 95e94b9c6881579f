"""Indices at the step's place, or beside it, in a loop of a model's code: `x[:, t]`, `x[t + 1]`, `x[..., t - 1, :]`.

Arrives: the source of an index. Leaves: the axis that the step goes along, how far beside it the place is, and what is
indexed behind it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepIndex:
    """An index of a named thing with the step in it.

    Attributes:
        of: the name.
        axis: which axis the step is an index of, from its end behind `...`.
        beside: how many places behind the step's.
        before: the indices before that one, all of them `:` or `...`.
        behind: the indices behind it.
    """

    of: str
    axis: int
    beside: int
    before: tuple[ast.expr, ...]
    behind: tuple[ast.expr, ...]

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
        if not any(map(_is_rest, before)):
            return cls(node.value.id, place, beside, before, behind)
        return cls(node.value.id, -1 - len(behind), beside, before, behind) if all(map(_is_whole, behind)) else None

    @property
    def is_all(self) -> bool:
        """Whether it is all that there is at its place."""
        return all(_is_whole(one) or _is_rest(one) for one in self.behind)

    @property
    def others(self) -> list[ast.expr]:
        """The other indices."""
        return [*self.before, *self.behind]


def _beside(node: ast.expr, step: str) -> int | None:
    """How many places behind the step's an index is."""
    match node:
        case ast.Name(id=name) if name == step:
            return 0
        case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=ast.Constant(value=int(number))) if name == step:
            return number
        case ast.BinOp(left=ast.Name(id=name), op=ast.Sub(), right=ast.Constant(value=int(number))) if name == step:
            return -number
        case ast.BinOp(left=ast.Constant(value=int(number)), op=ast.Add(), right=ast.Name(id=name)) if name == step:
            return number
    return None


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
