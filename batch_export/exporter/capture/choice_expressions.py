"""Choices in a statement of a loop (`total = total + (row if row.sum() > 0 else -row)`), as an `if` of two statements.

Arrives: the statements of a round. Leaves: the same with such an assignment as an `if` whose sides have one value each
in the choice's place. What Python works out before it asks is worked out behind that then, which is the same where all
of it only computes, as in the sides of each `if` that becomes a choice of values (`choice_forms.py`).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import TypeGuard

Statement = ast.Assign | ast.AugAssign | ast.Expr
_APART = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.BoolOp, ast.NamedExpr)
"""Expressions of which a part may not be worked out, or more than once."""


def as_statements(body: list[ast.stmt], is_choice: Callable[[ast.If], bool]) -> list[ast.stmt]:
    """The statements of a round, choices as such.

    Args:
        body: the statements, which are given back where there is none; those within others are changed in place.
        is_choice: whether an `if` is one of those that become choices of values, which do nothing but compute.
    """
    made: list[ast.stmt] = []
    for one in body:
        if isinstance(one, (ast.Assign, ast.AugAssign)) or _is_appended(one):
            made.append(_as_statement(one, is_choice))
            continue
        for name in ("body", "orelse"):
            inner = getattr(one, name, None)
            if isinstance(inner, list) and not isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                setattr(one, name, as_statements(inner, is_choice))
        made.append(one)
    return body if made == body else made


def _is_appended(statement: ast.stmt) -> TypeGuard[ast.Expr]:
    match statement:
        case ast.Expr(ast.Call(func=ast.Attribute(value=ast.Name(), attr="append"), args=[_], keywords=[])):
            return True
    return False


def _as_statement(statement: Statement, is_choice: Callable[[ast.If], bool]) -> ast.stmt:
    found = _choice(statement.value)
    if found is None:
        return statement
    sides = [_as_statement(_with(statement, found, value), is_choice) for value in (found.body, found.orelse)]
    made = ast.copy_location(ast.If(found.test, [sides[0]], [sides[1]]), statement)
    return made if is_choice(made) else statement


def _choice(value: ast.expr) -> ast.IfExp | None:
    """The first choice in an expression that is made whenever the expression is worked out."""
    if isinstance(value, ast.IfExp):
        return value
    if isinstance(value, _APART) or (isinstance(value, ast.Compare) and len(value.ops) > 1):
        return None
    inner = (one.value if isinstance(one, ast.keyword) else one for one in ast.iter_child_nodes(value))
    found = (_choice(one) for one in inner if isinstance(one, ast.expr))
    return next((one for one in found if one is not None), None)


class _With(ast.NodeTransformer):
    def __init__(self, choice: ast.IfExp, value: ast.expr) -> None:
        self._choice, self._value = choice, value

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """The value in the choice's place."""
        return self._value if node is self._choice else self.generic_visit(node)


def _with(statement: Statement, choice: ast.IfExp, value: ast.expr) -> Statement:
    """A copy of a statement that has one of a choice's values in its place."""
    made = copy.deepcopy(statement, {id(choice): choice})
    changed: Statement = _With(choice, copy.deepcopy(value)).visit(made)
    return changed
