"""Questions on sizes that have a name (`odd = h % 2 == 1 or w % 2 == 1`), put where an `if` asks them by it.

Arrives: a tree of a model's source. Leaves: the same tree, in which `if odd:` asks what the name stands for, so that
whoever writes an `if` anew sees it. A name that is used for anything else stays as it is.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence

from batch_export.exporter.capture.size_questions import any_of

_OWN = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal)
"""What has names of its own, or makes one another's: a function with any of them keeps its names."""


def put_in_place(tree: ast.AST) -> None:
    """Puts such questions where they are asked, in all functions of a tree, which is changed in place."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    for function in functions:
        inner = (each for one in function.body for each in ast.walk(one))
        if not any(isinstance(each, _OWN) for each in inner):
            _put(function)


def _put(function: ast.FunctionDef) -> None:
    for block in _blocks(function):
        for place, statement in enumerate(block):
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Compare() | ast.BoolOp() | ast.UnaryOp() as asked
                ):
                    behind = block[place + 1 :]
                    asks = _asking(function, name, behind)
                    if asks and any_of(asked)[0] and not _is_changed(asked, _meanwhile(behind, asks)):
                        for one in asks:
                            _ask(one, asked)


def _blocks(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for one in ast.walk(function):
        for _, field in ast.iter_fields(one):
            if isinstance(field, list) and field and isinstance(field[0], ast.stmt):
                yield field


def _asking(function: ast.FunctionDef, name: str, behind: Sequence[ast.stmt]) -> list[ast.If | ast.IfExp]:
    """Each `if` that asks a name; none where it is given another value, or read elsewhere or by anything else."""
    names = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id == name]
    reads = [one for one in names if isinstance(one.ctx, ast.Load)]
    arguments = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    if len(names) != len(reads) + 1 or name in arguments:
        return []
    asks = [
        one
        for statement in behind
        for one in ast.walk(statement)
        if isinstance(one, (ast.If, ast.IfExp)) and any(_named(one.test) is read for read in reads)
    ]
    return asks if len(asks) == len(reads) else []


def _meanwhile(behind: Sequence[ast.stmt], asks: Sequence[ast.If | ast.IfExp]) -> list[ast.stmt]:
    """What runs until the last `if` has asked; what that does then is not among it where it stands by itself."""
    last = max(place for place, one in enumerate(behind) if any(each in asks for each in ast.walk(one)))
    is_by_itself = behind[last] in asks and sum(each in asks for each in ast.walk(behind[last])) == 1
    return list(behind[: last + (not is_by_itself)])


def _named(test: ast.expr) -> ast.expr:
    return _named(test.operand) if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test


def _ask(node: ast.If | ast.IfExp, asked: ast.expr) -> None:
    """The question keeps its own lines: that is where it is answered when the model runs."""
    made, test = copy.deepcopy(asked), node.test
    while isinstance(test, ast.UnaryOp):
        made, test = ast.copy_location(ast.UnaryOp(ast.Not(), made), made), test.operand
    node.test = made


def _is_changed(asked: ast.expr, behind: Sequence[ast.stmt]) -> bool:
    """Whether something that a question reads is given another value before it is asked by its name.

    Args:
        asked: the question.
        behind: what runs once it has its name, as far as it is asked there.
    """
    names = {one.id for one in ast.walk(asked) if isinstance(one, ast.Name)}
    attributes = {one.attr for one in ast.walk(asked) if isinstance(one, ast.Attribute)}
    lists = {
        _root(one) for one in ast.walk(asked) if isinstance(one, ast.Subscript) and isinstance(one.value, ast.Name)
    }
    for statement in behind:
        for one in ast.walk(statement):
            is_given = isinstance(getattr(one, "ctx", None), (ast.Store, ast.Del))
            match one:
                case ast.Name(id=name) if is_given and name in names:
                    return True
                case ast.Attribute(attr=name) if is_given and name in attributes:
                    return True
                case ast.Subscript() if is_given and _root(one) in names:
                    return True
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name))) if name in lists:
                    return True  # `sizes.append(n)`
    return False


def _root(written: ast.expr) -> str:
    """The name of which something is a part."""
    while isinstance(written, (ast.Subscript, ast.Attribute)):
        written = written.value
    return written.id if isinstance(written, ast.Name) else ""
