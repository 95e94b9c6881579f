"""Names that an `if` of a model's source keeps to itself: what reads them outside of it was given another value.

Arrives: a name, an `if` and the function round it, as trees. Leaves: whether the value may be read outside of the `if`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp)
"""What may read a name when another has been given to it."""


def may_reach(name: str, function: ast.AST, node: ast.If) -> bool:
    """Whether what an `if` gives a name may be read outside of it: where no statement has given it another value.

    So it may by the `if` itself, the next time that a loop comes to it.
    """
    if _is_read_first(name, node):
        return True
    own = _names_in(node)
    told = set[int]()
    for block in _blocks(function):
        given = False
        for statement in block:
            inner = _names_in(statement)
            given = given and not inner & own
            told |= inner if given and not any(isinstance(one, _LATER) for one in ast.walk(statement)) else set()
            match statement:
                case ast.Assign(targets=[ast.Name(id=named)]) if not inner & own:
                    given |= named == name
    for one in ast.walk(function):
        match one:
            case ast.Global(names=names) | ast.Nonlocal(names=names) if name in names:
                return True
            case ast.AugAssign(target=ast.Name(id=read) as place) if read == name and id(place) not in own | told:
                return True
            case ast.Name(id=read, ctx=ast.Load()) if read == name and id(one) not in own | told:
                return True
    return False


def _is_read_first(name: str, node: ast.If) -> bool:
    """Whether an `if` reads a name in front of what it gives it, on either side."""
    return _reads(name, node.test) or any(_is_read_in(name, block) for block in (node.body, node.orelse))


def _is_read_in(name: str, block: list[ast.stmt]) -> bool:
    for statement in block:
        match statement:
            case ast.Assign(targets=[ast.Name(id=given)], value=value) if given == name:
                return _reads(name, value)
            case ast.If() if not _is_read_first(name, statement):
                continue
        if _reads(name, statement):
            return True
    return False


def _reads(name: str, node: ast.AST) -> bool:
    for one in ast.walk(node):
        match one:
            case ast.AugAssign(target=ast.Name(id=read)) if read == name:
                return True
            case ast.Name(id=read, ctx=ast.Load()) if read == name:
                return True
    return False


def _names_in(node: ast.AST) -> set[int]:
    return {id(one) for one in ast.walk(node) if isinstance(one, (ast.Name, ast.stmt))}


def _blocks(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """All lists of statements of a function."""
    for one in ast.walk(function):
        for _, block in ast.iter_fields(one):
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block
