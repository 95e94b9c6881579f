"""Lists of as many places as a loop has steps (`found = [None] * n`), into which its rounds put one element each.

Arrives: statements of a model's code. Leaves: the same with an empty list, to which the rounds append: what was in its
places nobody reads. Lists stay that anything else is done with before the loop's end.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass

from batch_export.exporter.capture.loop_choices import names_given


def appended(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements with such lists as ones that grow.

    Args:
        statements: one behind the other in a block; they stay as they are.
    """
    made = [each for one in statements for each in _apart(one)]
    for place, one in enumerate(made):
        found = _Listed.of(one)
        at = next((at for at in range(place + 1, len(made)) if found and _mentions(made[at], found.name)), None)
        if found is None or at is None:
            continue
        between, loop = made[place + 1 : at], made[at]
        if isinstance(loop, ast.For) and not names_given(between) & found.reads:
            filling = _filling(loop, found)
            if filling is not None:
                empty = ast.Assign([ast.Name(found.name, ast.Store())], ast.List([], ast.Load()))
                made[place] = ast.fix_missing_locations(ast.copy_location(empty, one))
                made[at] = filling
    return made


def _apart(statement: ast.stmt) -> list[ast.stmt]:
    """`a, b = [None] * n, [None] * n` as two statements; any other as it is."""
    match statement:
        case ast.Assign([ast.Tuple(elts=names)], ast.Tuple(elts=values)) if len(names) == len(values):
            made = [ast.copy_location(ast.Assign([name], one), one) for name, one in zip(names, values, strict=True)]
            given = [name.id for name in names if isinstance(name, ast.Name)]
            are_known = len(given) == len(names) and not any(_mentions(one, name) for one in values for name in given)
            if are_known and any(map(_Listed.of, made)):
                return list(made)
    return [statement]


@dataclass(frozen=True, slots=True)
class _Listed:
    """A list of one thing in many places.

    Attributes:
        name: its name.
        held: the thing.
        count: how many.
        reads: the names by which that goes.
    """

    name: str
    held: ast.Constant
    count: str
    reads: frozenset[str]

    @classmethod
    def of(cls, statement: ast.stmt) -> _Listed | None:
        match statement:
            case ast.Assign([ast.Name(id=name)], ast.BinOp(ast.List([ast.Constant() as of]), ast.Mult(), count)):
                pass
            case ast.Assign([ast.Name(id=name)], ast.BinOp(count, ast.Mult(), ast.List([ast.Constant() as of]))):
                pass
            case ast.Assign(
                [ast.Name(id=name)],
                ast.ListComp(
                    ast.Constant() as of,
                    [ast.comprehension(iter=ast.Call(func=ast.Name(id="range"), args=[count], keywords=[]), ifs=[])],
                ),
            ):
                pass
            case _:
                return None
        reads = frozenset(one.id for one in ast.walk(count) if isinstance(one, ast.Name))
        return cls(name, of, ast.dump(count), reads) if _is_plain(count) else None


def _is_plain(count: ast.expr) -> bool:
    """Whether a number is the same when it is asked again: a name, a size, a length."""
    match count:
        case ast.Name():
            return True
        case ast.Subscript(value=ast.Attribute(value=ast.Name(), attr="shape"), slice=place):
            return all(isinstance(one, (ast.Constant, ast.UnaryOp, ast.USub)) for one in ast.walk(place))
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="size"), args=[place], keywords=[]):
            return all(isinstance(one, (ast.Constant, ast.UnaryOp, ast.USub)) for one in ast.walk(place))
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name()], keywords=[]):
            return True
    return False


def _filling(loop: ast.For, listed: _Listed) -> ast.For | None:
    """A loop whose rounds append, if each of them fills the next place of the list; None otherwise."""
    if loop.orelse or not isinstance(loop.target, ast.Name) or names_given(loop.body) & {*listed.reads, loop.target.id}:
        return None
    over, is_backwards = loop.iter, False
    match over:
        case ast.Call(func=ast.Name(id="reversed"), args=[inner], keywords=[]):
            over, is_backwards = inner, True
    match over:
        case ast.Call(func=ast.Name(id="range"), args=[count], keywords=[]) if ast.dump(count) == listed.count:
            pass
        case _:
            return None
    body = list(loop.body)
    found = [place for place, one in enumerate(body) if _mentions(one, listed.name)]
    if len(found) != 1 or any(isinstance(one, (ast.Break, ast.Continue)) for each in body for one in ast.walk(each)):
        return None
    match body[found[0]]:
        case ast.Assign([ast.Subscript(value=ast.Name(id=name), slice=ast.Name(id=step))], value) if (
            name == listed.name and step == loop.target.id
        ):
            value = _Before(name, step, listed.held).visit(copy.deepcopy(value))
            if _mentions(value, name):
                return None
        case _:
            return None
    method, place = ("insert", [ast.Constant(0)]) if is_backwards else ("append", [])
    added = ast.Attribute(ast.Name(listed.name, ast.Load()), method, ast.Load())
    call = ast.Expr(ast.Call(added, [*place, value], []))
    body[found[0]] = ast.fix_missing_locations(ast.copy_location(call, body[found[0]]))
    return ast.copy_location(ast.For(loop.target, loop.iter, body, [], loop.type_comment), loop)


@dataclass(slots=True)
class _Before(ast.NodeTransformer):
    """What was in a list's place before, where that is read."""

    name: str
    step: str
    held: ast.Constant

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """An element of the list."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Name(id=step)) if (name, step) == (
                self.name,
                self.step,
            ):
                return ast.copy_location(ast.Constant(self.held.value), node)
        return self.generic_visit(node)


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))
