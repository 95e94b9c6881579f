"""What a function's source does with a name: whether it stands for one thing, and where it is read.

Arrives: the source of a function, and a name. Leaves: what it stands for, and whether it may be read for another value.
Nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence


def names_in(text: str) -> set[str]:
    """The names that a piece of source has."""
    return {one.id for one in ast.walk(ast.parse(text, mode="eval")) if isinstance(one, ast.Name)}


def only_value(function: ast.FunctionDef, name: str) -> ast.expr | None:
    """What the only assignment of a name gives it; None where there are others, or what it stands for is written to."""
    given = [one for one in ast.walk(function) if isinstance(one, ast.Assign) and _gives(one, name)]
    is_plain = len(given) == 1 and any(isinstance(one, ast.Name) for one in given[0].targets)
    return given[0].value if is_plain and given_once(function, name) else None


def given_once(function: ast.FunctionDef, name: str) -> bool:
    """Whether a name stands for one thing in a function, which nothing writes to by that name."""
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=of, ctx=ast.Store()) | ast.AugAssign(target=of) if _root(of) == name:
                return False
            case ast.Call(func=ast.Attribute(value=of, attr=method)) if method.endswith("_") and _root(of) == name:
                return False
    names = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id == name]
    parameters = sum(isinstance(one, ast.arg) and one.arg == name for one in ast.walk(function))
    return sum(not isinstance(one.ctx, ast.Load) for one in names) + parameters == 1


def _gives(statement: ast.Assign, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for part in statement.targets for one in ast.walk(part))


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def is_stored(node: ast.AST) -> bool:
    """Whether a name is given a value."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def is_read_elsewhere(name: str, function: ast.FunctionDef, statements: Sequence[ast.stmt]) -> bool:
    """Whether a function reads a name outside of some statements where they may have given it its value."""
    work = {id(one) for one in statements}

    def reads(node: ast.AST) -> bool:
        return any(isinstance(one, ast.Name) and one.id == name and not is_stored(one) for one in ast.walk(node))

    def is_read(block: Sequence[ast.stmt], *, known: bool) -> bool:
        for one in block:
            if any(id(each) in work for each in ast.walk(one)):
                known = False
            if id(one) in work:
                continue
            blocks = [getattr(one, part) for part in ("body", "orelse", "finalbody", "handlers") if hasattr(one, part)]
            if not blocks:
                if not known and (reads(one) or (isinstance(one, (ast.Global, ast.Nonlocal)) and name in one.names)):
                    return True
                known = known or (isinstance(one, ast.Assign) and any(_is_target(each, name) for each in one.targets))
                continue
            heads = [child for child in ast.iter_child_nodes(one) if isinstance(child, (ast.expr, ast.withitem))]
            if not known and any(reads(head) for head in heads):
                return True
            within = known or (isinstance(one, ast.For) and _is_target(one.target, name))
            if any(is_read(each, known=within) for each in blocks):
                return True
        return False

    inner = [one for part in function.body for one in ast.walk(part)]
    if any(isinstance(one, (ast.FunctionDef, ast.Lambda)) and reads(one) for one in inner):
        return True
    return is_read(function.body, known=False)


def _is_target(target: ast.expr, name: str) -> bool:
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return any(isinstance(one, ast.Name) and one.id == name for one in parts)
