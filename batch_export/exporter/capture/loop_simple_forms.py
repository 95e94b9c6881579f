"""Loops as others that mean the same: places counted from a number on, rounds left early, places that are multiplied.

Arrives: a `for` of a model's code. Leaves: one without `enumerate(rows, start=1)`, without `if test: continue`, and
with `out[i] = out[i] * 2` for `out[i] *= 2`. What it goes over stays the same part of the tree, so that a loop that is
not followed is the one that is written.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence


def simplified(loop: ast.For) -> ast.For:
    """A loop without those; the loop itself where it has none of them."""
    target, over, body = loop.target, loop.iter, list(loop.body)
    match over, target:
        case (
            ast.Call(
                func=ast.Name(id="enumerate"),
                args=[rows],
                keywords=[ast.keyword(arg="start", value=ast.Constant(value=int(start)))],
            )
            | ast.Call(func=ast.Name(id="enumerate"), args=[rows, ast.Constant(value=int(start))], keywords=[]),
            ast.Tuple(elts=[ast.Name(id=name), element]),
        ) if not any(_gives(one, name) for one in body):
            place = f"__place_at_{loop.lineno}__"
            over = ast.Call(ast.Name("enumerate", ast.Load()), [rows], [])
            target = ast.Tuple([ast.Name(place, ast.Store()), element], ast.Store())
            counted = ast.BinOp(ast.Name(place, ast.Load()), ast.Add(), ast.Constant(start))
            body = [_with_number(one, name, counted) for one in body]
    body = [_written_out(one) for one in _without_continue(body)]
    if over is loop.iter and body == loop.body:
        return loop
    made = ast.For(target, over, body, loop.orelse, loop.type_comment)
    ast.copy_location(over, loop.iter)
    ast.copy_location(made, loop)
    return ast.fix_missing_locations(made)


_SCALING = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def _written_out(statement: ast.stmt) -> ast.stmt:
    """What is written to a place, of which the product with what stands there is one."""
    match statement:
        case ast.AugAssign(target=ast.Subscript(value=ast.Name() as of, slice=place), op=op, value=value) if isinstance(
            op, _SCALING
        ):
            there = ast.Subscript(ast.Name(of.id, ast.Load()), copy.deepcopy(place), ast.Load())
            made = ast.Assign([copy.deepcopy(statement.target)], ast.BinOp(there, op, value))
            return ast.copy_location(made, statement)
    return statement


def _gives(statement: ast.stmt, name: str) -> bool:
    """Whether a statement gives a name a value."""
    names = (one for one in ast.walk(statement) if isinstance(one, ast.Name) and one.id == name)
    return any(not isinstance(one.ctx, ast.Load) for one in names)


class _Numbered(ast.NodeTransformer):
    def __init__(self, name: str, number: ast.expr) -> None:
        self.name, self.number = name, number

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A number in place of a name."""
        if node.id != self.name or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(copy.deepcopy(self.number), node)


def _with_number(statement: ast.stmt, name: str, number: ast.expr) -> ast.stmt:
    made: ast.stmt = _Numbered(name, number).visit(copy.deepcopy(statement))
    return made


def _without_continue(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements with those behind `if test: continue` on the other side of that test."""
    for place, one in enumerate(body):
        match one:
            case ast.If(test=test, body=[ast.Continue()], orelse=[]):
                rest = _without_continue(body[place + 1 :])
                if not rest:
                    return list(body[:place])
                other = ast.If(ast.UnaryOp(ast.Not(), test), rest, [])
                return [*body[:place], ast.copy_location(other, one)]
    return list(body)
