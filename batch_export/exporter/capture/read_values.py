"""What an expression of a model's source is in a frame that runs: names, attributes, places, and arithmetic of them.

Arrives: an expression and a frame. Leaves: its value; nothing is called but the larger and smaller number, and
`x.size(1)` is a place in a shape.
"""

from __future__ import annotations

import ast
import contextlib
import operator
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

_COMPUTE: Mapping[type[ast.operator | ast.unaryop], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_CALLED: Mapping[str, Callable[..., Any]] = {
    "abs": lambda *given: abs(*given),
    "max": lambda *given: max(*given),
    "min": lambda *given: min(*given),
    "tuple": tuple,
    "list": list,
}
"""Functions that are looked up when they are called: a capture has others of sizes."""


def value_of(read: ast.expr, frame: FrameType) -> Any:
    """What an expression is in a frame; None where it cannot be told."""
    with contextlib.suppress(Exception):
        match read:
            case ast.Name(id=name):
                return frame.f_locals[name] if name in frame.f_locals else frame.f_globals[name]
            case ast.Constant(value=value):
                return value
            case ast.Attribute(value=of, attr=name):
                return getattr(value_of(of, frame), name)
            case ast.Subscript(value=of, slice=place):
                return value_of(of, frame)[value_of(place, frame)]
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(*(None if one is None else _known(one, frame) for one in (lower, upper, step)))
            case ast.Tuple(elts=elements):
                return tuple(_known(one, frame) for one in elements)
            case ast.List(elts=elements):
                return [_known(one, frame) for one in elements]
            case ast.UnaryOp(op=computed, operand=operand):
                return _COMPUTE[type(computed)](value_of(operand, frame))
            case ast.BinOp(left=left, op=computed, right=right):
                return _COMPUTE[type(computed)](value_of(left, frame), value_of(right, frame))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return _CALLED[name](*(value_of(one, frame) for one in args))
            case ast.Call(func=ast.Attribute(value=of, attr="size"), args=args, keywords=[]):
                sizes = value_of(of, frame).shape
                return sizes[value_of(args[0], frame)] if args else sizes
    return None


def _known(read: ast.expr, frame: FrameType) -> Any:
    """The same of a part that is no `None`.

    Raises:
        LookupError: it cannot be told.
    """
    value = value_of(read, frame)
    if value is None:
        raise LookupError(ast.unparse(read))
    return value
