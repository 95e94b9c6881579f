"""What a loop of a model's code goes over: whole numbers, slices of a tensor, or what a name stands for.

Arrives: the source of a loop. Leaves: what it goes over, in which order, and its names for the place and the slice.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

WALKED = frozenset(("range", "enumerate", "unbind", "transpose", "permute", "movedim", "swapaxes"))
"""What loops may go over, besides names of a function's own; others (`for layer in self.layers`) are not looked at, for
which sources would be read."""


@dataclass(frozen=True, slots=True)
class LoopWay:
    """What a loop goes over.

    Attributes:
        over: whole numbers, or a tensor's slices.
        step: the loop's name for the place; empty where there is none.
        element: the loop's name for the slice there; empty where it goes over numbers.
        is_backwards: whether it begins at the end.
    """

    over: ast.expr
    step: str = ""
    element: str = ""
    is_backwards: bool = False

    @classmethod
    def of(cls, loop: ast.For, *, over_names: bool = False) -> LoopWay | None:
        """The way of a loop over `range`, or over what `unbind` and the like give, also in `enumerate`, `reversed`.

        Args:
            loop: the loop.
            over_names: whether a name stands for a tensor, or may do so; within `enumerate` it always may.
        """
        match loop.iter, loop.target:
            case ast.Call(func=ast.Name(id="reversed"), args=[over], keywords=[]), ast.Name(id=name):
                is_backwards = True
            case ast.Call(func=ast.Name(id="enumerate"), args=[over], keywords=[]), ast.Tuple(
                elts=[ast.Name(id=step), ast.Name(id=name)]
            ):
                return cls(over, step, name) if isinstance(over, ast.Name) or _gives_slices(over) else None
            case over, ast.Name(id=name):
                is_backwards = False
            case _:
                return None
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "range":
            return None if over.keywords else cls(over, step=name, is_backwards=is_backwards)
        may_give = _gives_slices(over) or (over_names and isinstance(over, ast.Name))
        return cls(over, element=name, is_backwards=is_backwards) if may_give else None

    def over_name(self, loop: ast.For, name: str) -> None:
        """Lets a loop go the same way over what a name stands for."""
        if loop.iter is self.over:
            loop.iter = ast.Name(name, ast.Load())
        elif isinstance(loop.iter, ast.Call):
            loop.iter.args = [ast.Name(name, ast.Load())]


def _gives_slices(over: ast.expr) -> bool:
    return isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in WALKED
