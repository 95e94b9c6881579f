"""What the statements of a loop's rounds do, by their source: which names they give values, and what they write to.

Arrives: statements of a function's tree. Leaves: names, and answers. Nothing is run or changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

_WRITES = re.compile(r"[^_]_$")
"""Methods of tensors that write to them: `add_`."""
_STRAIGHT = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass)


def writes(one: ast.AST) -> bool:
    """Whether something writes to a tensor: `h += 1`, `h[0] = 1`, `h.add_(1)`, `relu(h, inplace=True)`."""
    if isinstance(one, ast.Call):
        called = getattr(one.func, "attr", getattr(one.func, "id", ""))
        return bool(_WRITES.search(called)) or any(keyword.arg in ("out", "inplace") for keyword in one.keywords)
    return isinstance(one, ast.AugAssign) or (isinstance(one, ast.Subscript) and not isinstance(one.ctx, ast.Load))


def is_straight(statement: ast.stmt) -> bool:
    """Whether a statement of a round is no loop or way out of it; in an `if` names are given values, and no more."""
    if isinstance(statement, ast.If):
        return all(_gives_names(one) for one in (*statement.body, *statement.orelse))
    return isinstance(statement, _STRAIGHT)


def _gives_names(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.If, ast.Pass)):
        return is_straight(statement)
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    return bool(targets) and all(isinstance(one, (ast.Name, ast.Tuple, ast.Store)) for one in parts(targets))


def parts(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All that some nodes are made of."""
    return (part for one in nodes for part in ast.walk(one))


def is_store(name: ast.Name) -> bool:
    """Whether a name is given a value there, or taken away."""
    return isinstance(name.ctx, (ast.Store, ast.Del))


def stored(loop: ast.For) -> set[str]:
    """The names that a round gives values."""
    return {one.id for one in parts(loop.body) if isinstance(one, ast.Name) and is_store(one)}


def changed(loop: ast.For) -> set[str]:
    """The names that a round changes by `+=` and its like, which writes to what they stand for if that is a tensor."""
    found = (one.target for one in parts(loop.body) if isinstance(one, ast.AugAssign))
    return {one.id for one in found if isinstance(one, ast.Name)}


def summed(loop: ast.For, carried: Collection[str]) -> frozenset[str]:
    """Names that go on, are changed so, and are not read otherwise: nothing else is the same tensor."""
    read = {one.id for one in parts(loop.body) if isinstance(one, ast.Name) and not is_store(one)}
    return frozenset(changed(loop).intersection(carried) - read)


def added(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """The list and the element of `outputs += [h]`."""
    match node:
        case ast.AugAssign(target=ast.Name(id=of), op=ast.Add(), value=ast.List(elts=[element])):
            return None if isinstance(element, ast.Starred) else (of, element)
    return None
