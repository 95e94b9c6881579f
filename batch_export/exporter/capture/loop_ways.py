"""What a loop of a model's code goes over: whole numbers, slices of tensors, or what names stand for.

Arrives: the source of a loop. Leaves: what it goes over, in which order, and its names for the place and the slices.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

WALKED = frozenset(
    (
        *("range", "enumerate", "zip", "unbind", "transpose", "permute", "movedim", "moveaxis", "swapaxes", "swapdims"),
        *("t", "T", "mT", "flip", "view", "reshape", "flatten", "unflatten", "contiguous"),
    )
)
"""What loops may go over, besides names of a function's own; others (`for layer in self.layers`) are not looked at, for
which sources would be read."""


@dataclass(frozen=True, slots=True)
class LoopWay:
    """What a loop goes over.

    Attributes:
        over: whole numbers, or a tensor's slices; of `zip` those of several tensors.
        step: the loop's name for the place; empty where there is none.
        elements: the loop's names for the slices there; empty where it goes over numbers.
        is_backwards: whether it begins at the end.
    """

    over: tuple[ast.expr, ...]
    step: str = ""
    elements: tuple[str, ...] = ()
    is_backwards: bool = False

    @classmethod
    def of(cls, loop: ast.For, *, over_names: bool = False, is_of_numbers: bool = False) -> LoopWay | None:
        """The way of a loop over `range`, or over what `unbind` and the like give, also in `enumerate`, `reversed`.

        Args:
            loop: the loop.
            over_names: whether anything may stand for a tensor; a name within `enumerate` and `zip` always may.
            is_of_numbers: whether it has turned out to go over whole numbers.
        """
        over, target, step, is_backwards = loop.iter, loop.target, "", False
        match over, target:
            case ast.Call(func=ast.Name(id="reversed"), args=[inner], keywords=[]), _:
                over, is_backwards = inner, True
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner], keywords=[]), ast.Tuple(
                elts=[ast.Name(id=name), element]
            ):
                over, target, step = inner, element, name
                over_names = over_names or isinstance(inner, ast.Name)
        match over, target:
            case ast.Call(func=ast.Name(id="zip"), args=[_, *_] as parts, keywords=told), ast.Tuple(elts=names):
                elements = tuple(one.id for one in names if isinstance(one, ast.Name))
                is_followed = len(elements) == len(parts) == len(set(elements)) and not is_backwards
                is_followed = is_followed and all(one.arg == "strict" for one in told)
                may_give = all(isinstance(one, ast.Name) or _gives_slices(one) or _is_part(one) for one in parts)
                return cls(tuple(parts), step, elements) if is_followed and may_give else None
            case ast.Call(func=ast.Name(id="range"), keywords=[]), ast.Name(id=name):
                return None if step else cls((over,), step=name, is_backwards=is_backwards)
            case _, ast.Name(id=name) if is_of_numbers and not step:
                return cls((over,), step=name, is_backwards=is_backwards)
            case _, ast.Name(id=name):
                may_give = over_names or _gives_slices(over) or _is_part(over)
                return cls((over,), step, (name,), is_backwards) if may_give else None
        return None

    def over_these(self, loop: ast.For, names: Sequence[str]) -> None:
        """Lets a loop go the same way over what names stand for."""
        given: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
        if loop.iter is self.over[0]:
            loop.iter = given[0]
            return
        call = loop.iter
        if isinstance(call, ast.Call) and self.over[0] not in call.args:
            call = call.args[0]  # enumerate(zip(...))
        assert isinstance(call, ast.Call)
        call.args = given

    def first(self) -> tuple[ast.expr, int] | None:
        """The first place, and 1 or -1 for the way from there; None of other ways."""
        over = self.over[0]
        if self.elements:
            return None if self.is_backwards else (ast.Constant(0), 1)
        match over.args if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) else []:
            case [end]:
                begin, stride = ast.Constant(0), 1
            case [begin, end]:
                stride = 1
            case [begin, end, ast.Constant(value=1)]:
                stride = 1
            case [begin, _, ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))]:
                return None if self.is_backwards else (begin, -1)
            case _:
                return None
        return (ast.BinOp(end, ast.Sub(), ast.Constant(1)), -1) if self.is_backwards else (begin, stride)


def _is_part(over: ast.expr) -> bool:
    """Whether something is a part of what a name stands for (`rows[1:]`)."""
    return isinstance(over, ast.Subscript) and isinstance(over.value, ast.Name) and isinstance(over.slice, ast.Slice)


def _gives_slices(over: ast.expr) -> bool:
    of = over.func if isinstance(over, ast.Call) else over
    return isinstance(of, ast.Attribute) and of.attr in WALKED
