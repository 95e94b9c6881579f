"""Loops that a `return` leaves, as loops that a `break` leaves: `while True: ...; if test: return x`.

Arrives: a function's tree. Leaves: the same with the `return` behind the loop, where nothing else can come there, or
what comes there returns the same.
"""

from __future__ import annotations

import ast

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def left_by_break(function: ast.FunctionDef) -> ast.FunctionDef:
    """The function with such loops written so; its tree is changed."""
    if any(isinstance(one, ast.Return) for loop in _loops(function) for one in ast.walk(loop)):
        _Bodies().visit(function)
    return function


def _loops(function: ast.FunctionDef) -> list[ast.For | ast.While]:
    return [one for one in ast.walk(function) if isinstance(one, (ast.For, ast.While))]


class _Bodies(ast.NodeTransformer):
    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Whatever has statements."""
        super().generic_visit(node)
        for part in ("body", "orelse", "finalbody"):
            if isinstance(statements := getattr(node, part, None), list):
                setattr(node, part, _written(statements))
        return node


def _written(statements: list[ast.stmt]) -> list[ast.stmt]:
    made: list[ast.stmt] = []
    for place, one in enumerate(statements):
        made.append(one)
        if not isinstance(one, (ast.For, ast.While)) or one.orelse:
            continue
        returns = [each for each in _inside(one.body) if isinstance(each, (ast.Return, ast.Break))]
        ends = [each for each in one.body if isinstance(each, ast.If) and not each.orelse]
        end = next(
            (each for each in ends if returns == [each.body[-1]] and isinstance(each.body[-1], ast.Return)), None
        )
        if end is None:
            continue
        left = end.body[-1]
        behind = statements[place + 1] if place + 1 < len(statements) else None
        is_same = isinstance(behind, ast.Return) and ast.dump(behind) == ast.dump(left)
        if _is_endless(one) or is_same:
            end.body[-1] = ast.copy_location(ast.Break(), left)
            made += [] if is_same else [left]
    return made


def _is_endless(loop: ast.For | ast.While) -> bool:
    return isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and bool(loop.test.value)


def _inside(statements: list[ast.stmt]) -> list[ast.AST]:
    """The nodes of a loop's rounds, without those of functions within them; a `break` of an inner loop counts, too."""
    found: list[ast.AST] = []
    rest: list[ast.AST] = list(statements)
    while rest:
        one = rest.pop()
        found.append(one)
        if not isinstance(one, _SCOPES):
            rest += ast.iter_child_nodes(one)
    return found
