"""Tensors that are cut where data say so (`m = lengths.max()`, `if m < x.size(1): x = x[:, :m]`), cut at all data.

Arrives: an `if` of a model's source. Leaves: the same cuts without the `if`. A slice up to a number that is no smaller
than the axis is all of it, so that both ways of such an `if` are the slice. Whether the number is compared with the
axis's own size is looked at while the capture runs.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from batch_export.exporter.capture.forced_decisions import OneWayOnlyError

CUT = "__cut_in_a_choice__"
"""What the new code calls."""


def is_crop(node: ast.If) -> bool:
    """Whether an `if` does nothing but cut tensors at one end, by a number that it compares with something."""
    asked = _asked(node.test)
    return asked is not None and not node.orelse and bool(node.body) and all(_axis(one, asked[0]) for one in node.body)


def lines_of(node: ast.If, function: ast.AST) -> set[int]:
    """The lines at which such an `if` may be asked: its own, and where its number is made of data."""
    asked = _asked(node.test)
    assert asked is not None
    names = {one.id for one in ast.walk(asked[0]) if isinstance(one, ast.Name)}
    made = (one for one in ast.walk(function) if isinstance(one, ast.Assign) and one.lineno < node.lineno)
    given = [one for one in made if any(isinstance(each, ast.Name) and each.id in names for each in one.targets)]
    places: list[ast.expr | ast.stmt] = [node.test, *given]
    return {line for one in places for line in range(one.lineno, (one.end_lineno or one.lineno) + 1)}


def cuts(node: ast.If) -> Iterator[ast.stmt]:
    """The cuts of such an `if`."""
    asked = _asked(node.test)
    assert asked is not None
    end, size = map(_read, asked)
    held = f"__size_at_{node.lineno}__"
    yield ast.Assign([ast.Name(held, ast.Store())], size)
    for one in node.body:
        axis = _axis(one, asked[0])
        assert isinstance(one, ast.Assign)
        assert axis is not None
        given = [_read(one.targets[0]), ast.Constant(axis[0]), copy.deepcopy(end), ast.Name(held, ast.Load())]
        yield ast.Assign([copy.deepcopy(one.targets[0])], ast.Call(ast.Name(CUT, ast.Load()), given, []))


def _read(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


def _asked(test: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The number, and what it is compared with, of a question that is true where it is the smaller one."""
    match test:
        case ast.Compare(left=end, ops=[ast.Lt() | ast.LtE() | ast.NotEq()], comparators=[size]) if _is_size(size):
            return end, size
        case ast.Compare(left=size, ops=[ast.Gt() | ast.GtE() | ast.NotEq()], comparators=[end]):
            return (end, size) if _is_size(size) else None
    return None


def _is_size(node: ast.expr) -> bool:
    match node:
        case ast.Name():
            return True
        case ast.Call(func=ast.Attribute(attr="size"), args=[ast.Constant() | ast.UnaryOp()], keywords=[]):
            return True
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=ast.Constant() | ast.UnaryOp()):
            return True
    return False


def _axis(statement: ast.stmt, end: ast.expr) -> tuple[int] | None:
    """The axis that `x = x[:, :m]` cuts, in a tuple; None of other statements."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Name(id=same), slice=place)):
            places = place.elts if isinstance(place, ast.Tuple) else [place]
            ends = [axis for axis, one in enumerate(places) if _is_up_to(one, end)]
            whole = all(_is_whole(one) for axis, one in enumerate(places) if axis not in ends)
            return (ends[0],) if name == same and whole and len(ends) == 1 else None
    return None


def _is_up_to(place: ast.expr, end: ast.expr) -> bool:
    match place:
        case ast.Slice(lower=None, upper=ast.expr() as upper, step=None):
            return ast.dump(upper) == ast.dump(end)
    return False


def _is_whole(place: ast.expr) -> bool:
    return isinstance(place, ast.Slice) and not (place.lower or place.upper or place.step)


def _cut(tensor: Any, axis: int, end: Any, size: Any) -> Tensor:
    """A tensor up to a number along an axis.

    Args:
        tensor: the tensor.
        axis: the axis.
        end: the number.
        size: what the model compared it with.
    """
    if not isinstance(tensor, Tensor) or axis >= tensor.dim() or not _is_one(tensor.shape[axis], size):
        raise OneWayOnlyError("an `if` on data cuts a tensor by a number that it compares with another size")
    number = end.item() if isinstance(end, Tensor) else end
    return tensor[(*[slice(None)] * axis, slice(None, number))]


def _is_one(size: Any, other: Any) -> bool:
    if not isinstance(size, (int, torch.SymInt)) or not isinstance(other, (int, torch.SymInt)):
        return False
    return not torch.compiler.is_dynamo_compiling() and bool(statically_known_true(size == other))


CALLED = {CUT: _cut}
"""What it calls, by name."""
