"""Lists that get tensors in loops that end by data (`tokens.append(token)`), as rows of one tensor and their number.

Arrives: a loop over a range, in a model's function. Leaves: the loop with each `append` to such a list as an
assignment, statements to stand before and behind it, and what those call while torch captures the model. A list stays
of which the loop reads more than the last element, that has another name, or that gets something in some rounds only
before the last one.
"""

from __future__ import annotations

import ast
import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from batch_export.exporter.capture import loop_statements
from batch_export.exporter.capture.forced_decisions import OneWayOnlyError
from batch_export.exporter.capture.free_sequences import FreeRows

_APPENDED, _LAST, _LISTED = "__appended_in_a_round__", "__last_in_a_round__", "__list_behind_rounds__"
_SEVERAL = "a list that grows in a loop that ends by data holds tensors of several shapes or dtypes"
_LARGEST = 2**24
"""Elements that all tensors of such a list may have: the file keeps room for them, and copies it in each round."""
_LOOPS = (ast.For, ast.While, ast.AsyncFor, ast.comprehension)


@dataclass(slots=True)
class Lists:
    """A loop without lists that grow.

    Attributes:
        body: its statements.
        over: the range that it goes over.
        before: statements in front of it.
        behind: statements behind it.
        known: names that `before` gives.
        rows: those of them that hold rows, of which only so many are read as were appended.
    """

    body: list[ast.stmt]
    over: ast.expr | None
    before: list[ast.stmt] = field(default_factory=list)
    behind: list[ast.stmt] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    rows: set[str] = field(default_factory=set)


def without_lists(
    function: ast.FunctionDef, loop: ast.For | ast.While, over: ast.expr | None, end: ast.If | None, number: int
) -> tuple[Lists, ast.If | None]:
    """The loop with its lists as rows, and the `if` that ends it.

    Args:
        function: in which the loop stands.
        loop: the loop.
        over: the range that it goes over; nothing is changed where there is none.
        end: the `if` at which it ends.
        number: which of the function's loops it is, for the names.
    """
    places = [one for one in loop.body if one is not end] + (end.body if end is not None else [])
    names = sorted({name for one in places if (name := _appended_to(one)) is not None})
    names = [name for name in names if over is not None and _is_its_own(function, loop, name, places)]
    if not names:
        return Lists(loop.body, over), end
    steps = f"__steps_{number}__"
    found = Lists([], ast.Name(steps, ast.Load()))
    found.before.append(ast.Assign([ast.Name(steps, ast.Store())], over))  # type: ignore[arg-type]  # not None here
    for name in names:
        rows, count, most, last = _names_for(name, number)
        times = sum(_appended_to(one) == name for one in places)
        found.before += ast.parse(f"{rows}, {count}, {most} = None, 0, {times} * len({steps})").body
        found.before += ast.parse(f"{last} = {name}[-1] if {name} else None").body
        found.behind += ast.parse(f"{name} = {_LISTED}({name}, {rows}, {count})").body
        found.known |= {rows, count}
        found.rows.add(rows)
    written = _Written(names, number)
    found.body = [written.visit(copy.deepcopy(one)) for one in loop.body]
    new_end = found.body[loop.body.index(end)] if end is not None else None
    return found, new_end if isinstance(new_end, ast.If) else None


def _names_for(name: str, number: int) -> tuple[str, ...]:
    return tuple(f"__{kind}_of_{name}_{number}__" for kind in ("rows", "count", "most", "last"))


def _appended_to(statement: ast.stmt) -> str | None:
    """The name of the list that gets an element here."""
    return _appends(statement.value) if isinstance(statement, ast.Expr) else None


def _appends(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[_], keywords=[]):
            return name
    return None


@dataclass(slots=True)
class _Written(ast.NodeTransformer):
    """Writes what a round does with its lists.

    Attributes:
        names: the lists.
        number: which loop it is.
    """

    names: Sequence[str]
    number: int

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """An element more."""
        self.generic_visit(node)
        name = _appended_to(node)
        if name not in self.names:
            return node
        rows, count, most, _ = _names_for(str(name), self.number)
        made = ast.parse(f"{rows}, {count} = {_APPENDED}({rows}, {count}, None, {most})").body[0]
        made.value.args[2] = node.value.args[0]  # type: ignore[attr-defined]  # a call, and a call
        return ast.copy_location(made, node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """The last element."""
        self.generic_visit(node)
        name = _last_of(node)
        if name not in self.names:
            return node
        rows, count, _, last = _names_for(str(name), self.number)
        return ast.copy_location(ast.parse(f"{_LAST}({last}, {rows}, {count})", mode="eval").body, node)


def _last_of(node: ast.AST) -> str | None:
    """The name of the list whose last element is read."""
    match node:
        case ast.Subscript(
            value=ast.Name(id=name), slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)), ctx=ast.Load()
        ):
            return name
    return None


def _is_its_own(function: ast.FunctionDef, loop: ast.stmt, name: str, places: Sequence[ast.stmt]) -> bool:
    """Whether a list has one name, made in this function, and the loop appends to it or reads its last element."""
    parts = list(ast.walk(loop))
    inside = sum(isinstance(one, ast.Name) and one.id == name for one in parts)
    if inside != sum(_appended_to(one) == name for one in places) + sum(_last_of(one) == name for one in parts):
        return False
    others = [
        one for one in ast.walk(function) if isinstance(one, (ast.Lambda, ast.FunctionDef)) and one is not function
    ]
    if any(isinstance(one, ast.Name) and one.id == name for other in others for one in ast.walk(other)):
        return False
    begun = [each for one in ast.walk(function) if (each := _begun(one, name)) is not None]
    given = {id(one) for one in begun}
    named = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id == name]
    calls = [one.func for one in ast.walk(function) if isinstance(one, ast.Call) and _appends(one) == name]
    appending = {id(one.value) for one in calls if isinstance(one, ast.Attribute)}
    read = {id(one.value) for one in ast.walk(function) if isinstance(one, ast.Subscript) and _last_of(one) == name}
    before = [one for one in named if one.lineno < loop.lineno]
    if not before or any(id(one) not in given | appending | read for one in before):
        return False
    if not all(any(begin in ast.walk(each) for begin in begun) for each in _loops_round(function, loop)):
        return False
    known = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    known |= {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    later = [one for one in ast.walk(function) if getattr(one, "lineno", 0) >= loop.lineno]
    written = [part for one in later for part in loop_statements.written(one, known)]
    return not _alike(function, name) & {
        each.id for part in written for each in ast.walk(part) if isinstance(each, ast.Name)
    }


def _alike(function: ast.FunctionDef, name: str) -> set[str]:
    """Names that may stand for an element of a list: a write to one of them changes the list in Python."""
    found: set[str] = set()
    for one in ast.walk(function):
        if _appends(one) == name and isinstance(one, ast.Call):
            found |= {each.id for each in ast.walk(one.args[0]) if isinstance(each, ast.Name)}
        if isinstance(one, ast.Assign) and any(_last_of(each) == name for each in ast.walk(one.value)):
            found |= {each.id for target in one.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        if isinstance(one, ast.Assign) and _begun(one, name) is not None:
            found |= {each.id for each in ast.walk(one.value) if isinstance(each, ast.Name)}
    return found - {name}


def _begun(statement: ast.AST, name: str) -> ast.expr | None:
    """The name where it is given a list that is written there: `xs = []`, `xs, ys = [], []`."""
    match statement:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pairs = list(zip(targets, values, strict=False))
        case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
            pairs = [(target, value)]
        case _:
            return None
    named = [
        one for one, value in pairs if isinstance(one, ast.Name) and one.id == name and isinstance(value, ast.List)
    ]
    return named[0] if named else None


def _loops_round(function: ast.FunctionDef, loop: ast.stmt) -> list[ast.AST]:
    """The loops that a loop stands in: a list that they go on with from round to round is not what it was."""
    loops = [one for one in ast.walk(function) if isinstance(one, _LOOPS) and one is not loop]
    return [one for one in loops if any(each is loop for each in ast.walk(one))]


def appended(rows: Tensor | None, count: Any, one: Any, most: int) -> tuple[Tensor, Any]:
    """The rows with one more, and their number.

    Args:
        rows: as many as there may be; None before the first.
        count: how many there are.
        one: the next.
        most: how many there may be.

    Raises:
        OneWayOnlyError: it is no tensor.
    """
    if not isinstance(one, Tensor):
        raise OneWayOnlyError(f"a list gets a {type(one).__name__} in a loop that ends by data")
    if rows is None:
        if most * math.prod(size for size in one.shape if isinstance(size, int)) > _LARGEST:
            raise OneWayOnlyError(f"a list may get {most} tensors of {tuple(one.shape)} in a loop that ends by data")
        rows = one.new_zeros((most, *one.shape))
    place = count if isinstance(count, Tensor) else torch.full((), count, dtype=torch.int64, device=one.device)
    return rows.index_copy(0, place.reshape(1), one.unsqueeze(0)), count + 1


def last(begun: Tensor | None, rows: Tensor | None, count: Any) -> Tensor:
    """The last element.

    Args:
        begun: the last one before the loop; None where there was none.
        rows: what the list got since; None before the first.
        count: how many.

    Raises:
        OneWayOnlyError: there is none yet, or it looks unlike the later ones.
    """
    if rows is None:
        if not isinstance(begun, Tensor):
            raise OneWayOnlyError("the last element of a list is read in a loop that ends by data, and is no tensor")
        return begun
    place = count if isinstance(count, Tensor) else torch.full((), count, dtype=torch.int64, device=rows.device)
    found = rows.index_select(0, (place - 1).clamp(min=0).reshape(1)).squeeze(0)
    if begun is None:
        return found
    if begun.shape != found.shape or begun.dtype != found.dtype:
        raise OneWayOnlyError(_SEVERAL)
    return torch.where(place == 0, begun, found)


def listed(begun: Any, rows: Tensor | None, count: Any) -> Any:
    """The list behind the loop.

    Args:
        begun: the list before the loop.
        rows: what it got, and rows that it did not; None where there was no round.
        count: how many it got.

    Raises:
        OneWayOnlyError: it holds other things than tensors.
    """
    if rows is None:
        return begun
    if type(begun) is not list or not all(isinstance(one, Tensor) for one in begun):
        raise OneWayOnlyError("a list that grows in a loop that ends by data holds what is no tensor")
    if any(one.dtype != rows.dtype or one.dim() != rows.dim() - 1 for one in begun):
        raise OneWayOnlyError(_SEVERAL)
    length = count.item()
    torch._check(length >= 0)
    torch._check(length <= rows.shape[0])
    found = rows.narrow(0, 0, length)
    return FreeRows(torch.cat([torch.stack(begun), found]) if begun else found, list)


CALLED: Mapping[str, Any] = {_APPENDED: appended, _LAST: last, _LISTED: listed}
"""What the written code calls."""
