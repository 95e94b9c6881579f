"""What the statements of a loop's rounds do, by their source: which names they give values, and what they write to.

Arrives: statements of a function's tree. Leaves: names, and answers. Nothing is run or changed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from batch_export.exporter.capture.loop_places import StepIndex

_WRITES = re.compile(r"[^_]_$")
"""Methods of tensors that write to them: `add_`."""
_STRAIGHT = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass)


def written(one: ast.AST, known: Collection[str]) -> Iterator[ast.AST]:
    """What something writes to: `h += 1`, `h[0] = 1`, `h.add_(1)`, `torch.add(h, 1, out=h)`, `relu(h, inplace=True)`.

    Args:
        one: a statement or an expression.
        known: the names of the function; a method of anything else is a function of a library (`torch.relu_(h)`).
    """
    if isinstance(one, ast.AugAssign):
        yield one.target
    if isinstance(one, ast.Subscript) and not isinstance(one.ctx, ast.Load):
        yield one.value
    if not isinstance(one, ast.Call):
        return
    yield from (keyword.value for keyword in one.keywords if keyword.arg == "out")
    if any(keyword.arg == "inplace" for keyword in one.keywords):
        yield from one.args
    if _WRITES.search(getattr(one.func, "attr", getattr(one.func, "id", ""))):
        of = root = one.func.value if isinstance(one.func, ast.Attribute) else None
        while isinstance(root, ast.Attribute):
            root = root.value
        is_of_library = of is None or (isinstance(root, ast.Name) and root.id not in known)
        yield from one.args if of is None or is_of_library else (of,)


def keeps_parts(statements: Sequence[ast.stmt], known: Collection[str]) -> bool:
    """Whether a round writes to nothing that may be a part of what it reads (`row = x[far]`, then `row += 1`).

    A round with a loop of its own is looked at with that one's step.

    Args:
        statements: the round's.
        known: the names of the function.
    """
    if any(isinstance(one, (ast.For, ast.While, ast.comprehension)) for one in parts(statements)):
        return False
    if any(isinstance(one, ast.Call) and _takes_part(one, known) for one in parts(statements)):
        return False
    given = [
        (one.targets[0].id, one.value)
        for one in parts(statements)
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name)
    ]
    named: set[str] = set()
    begun = -1
    while begun != len(named):
        begun = len(named)
        named |= {name for name, value in given if _has_part(value, named)}
    wrote = [what for one in parts(statements) for what in written(one, known)]
    return not any(_has_part(one, named) for one in wrote)


def _takes_part(call: ast.Call, known: Collection[str]) -> bool:
    """Whether a layer or a function of the model's own, which may work in place, is given a part of something."""
    root = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    is_own = isinstance(root, ast.Name) and (root.id == "self" or (root is call.func and root.id in known))
    return is_own and any(isinstance(one, ast.Subscript) for one in call.args)


def _has_part(value: ast.AST, named: Collection[str]) -> bool:
    """Whether a part of something is read in an expression, or one of some names."""
    return any(
        (isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Load))
        or (isinstance(one, ast.Name) and one.id in named)
        for one in ast.walk(value)
    )


def is_straight(statement: ast.stmt) -> bool:
    """Whether a statement of a round is no way out of it; in an `if` names are given values, and no more.

    A loop within a round is one over what a model holds, not over a size, which is told when it is run.
    """
    if isinstance(statement, ast.For):
        return not statement.orelse and not statement.type_comment and all(map(is_straight, statement.body))
    if isinstance(statement, ast.If):
        return all(_gives_names(one) for one in (*statement.body, *statement.orelse))
    return isinstance(statement, _STRAIGHT)


def _gives_names(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.If, ast.Pass)):
        return is_straight(statement)
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.target, ast.Name)
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


def foreign_attribute(loop: ast.For) -> ast.Attribute | None:
    """An attribute that a round changes in place, or of something that is no name from outside of it."""
    own = stored(loop)
    changed_in_place = {id(one.target) for one in parts(loop.body) if isinstance(one, ast.AugAssign)}
    given = (one for one in parts(loop.body) if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load))
    return next(
        (
            one
            for one in given
            if not isinstance(one.value, ast.Name) or one.value.id in own or id(one) in changed_in_place
        ),
        None,
    )


def summed(loop: ast.For, carried: Collection[str]) -> frozenset[str]:
    """Names that go on, are changed so, and are neither read nor given a value otherwise."""
    read = {one.id for one in parts(loop.body) if isinstance(one, ast.Name) and not is_store(one)}
    return frozenset(_only_changed(loop).intersection(carried) - read)


def _only_changed(loop: ast.For) -> set[str]:
    """The names that a round changes so and gives no value otherwise, by which they may stand for another tensor."""
    targets = {id(one.target) for one in parts(loop.body) if isinstance(one, ast.AugAssign)}
    names = (one for one in parts(loop.body) if isinstance(one, ast.Name) and is_store(one))
    return changed(loop) - {one.id for one in names if id(one) not in targets}


def changed_and_read(loop: ast.For, carried: Collection[str]) -> frozenset[str]:
    """Names that go on, are changed so, and are read otherwise."""
    return frozenset(_only_changed(loop).intersection(carried)) - summed(loop, carried)


def added(node: ast.stmt) -> tuple[str, ast.expr] | None:
    """The list and the element of `outputs += [h]`."""
    match node:
        case ast.AugAssign(target=ast.Name(id=of), op=ast.Add(), value=ast.List(elts=[element])):
            return None if isinstance(element, ast.Starred) else (of, element)
    return None


def appended(node: ast.stmt) -> tuple[str, ast.expr, bool] | None:
    """The list and the element of `outputs.append(h)`, and of `outputs.insert(0, h)`, which comes before the others."""
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=of), attr=attr), args=given, keywords=[])):
            match attr, given:
                case "append", [element]:
                    return of, element, False
                case "insert", [ast.Constant(value=0), element]:
                    return of, element, True
    added_to = added(node)
    return None if added_to is None else (*added_to, False)


def filled(loop: ast.For, step: str) -> dict[str, StepIndex | None]:
    """The lists that rounds put elements into, with None, and the tensors that they write to, with the place."""
    found: dict[str, StepIndex | None] = {}
    for one in loop.body:
        if (listed := appended(one)) is not None:
            found[listed[0]] = None
        target = one.targets[0] if isinstance(one, ast.Assign) else None
        index = StepIndex.of_node(target, step) if isinstance(target, ast.Subscript) and step else None
        index = summed_at(one, step) if index is None and isinstance(one, ast.AugAssign) and step else index
        if index is not None:
            found[index.of] = index
    return found


def filled_in_part(loop: ast.For, step: str) -> dict[str, StepIndex]:
    """The tensors that rounds write to at the step's place, but not to all that is there, and the place.

    Those of which other places are written to as well are none.
    """
    found: dict[str, list[StepIndex]] = {}
    for one in parts(loop.body):
        targets = one.targets if isinstance(one, ast.Assign) else [one.target] if isinstance(one, ast.AugAssign) else []
        for target in targets:
            index = StepIndex.of_node(target, step) if isinstance(target, ast.Subscript) and step else None
            if index is not None:
                found.setdefault(index.of, []).append(index)
    return {
        name: each[0]
        for name, each in found.items()
        if not all(one.is_all for one in each) and len({(one.axis, one.beside) for one in each}) == 1
    }


def summed_at(node: ast.stmt, step: str) -> StepIndex | None:
    """The place of `out[:, t] += h` and of `-=`."""
    match node:
        case ast.AugAssign(target=ast.Subscript() as target, op=ast.Add() | ast.Sub()):
            return StepIndex.of_node(target, step)
    return None


def read_by_place(loop: ast.For) -> frozenset[str]:
    """The names of which rounds read an element."""
    read = (one for one in parts(loop.body) if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Load))
    return frozenset(one.value.id for one in read if isinstance(one.value, ast.Name))
