"""What an expression of a model's source is in a frame that runs: names, attributes and places; nothing is called."""

from __future__ import annotations

import ast
import contextlib
from types import FrameType
from typing import Any


def value_of(read: ast.expr, frame: FrameType) -> Any:
    """What an expression without calls is in a frame; None where it cannot be told."""
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
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value_of(operand, frame)
    return None
