"""Loops that end by data, of which a round as a function would do something else than the round itself.

Arrives: a function of a model, a loop in it, and the names that its rounds change. Leaves: whether all that its rounds
do goes by these names. What writes in place is seen by other names of the same memory; what reads a size, is called for
what it does, or was made before the loop of a name that changes, is not what it was.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from batch_export.exporter.capture import loop_reasons

_FRESH = frozenset(
    f"{before}{kind}{behind}"
    for kind in ("zeros", "ones", "empty", "full", "rand", "randn")
    for before, behind in (("", ""), ("new_", ""), ("", "_like"))
) | {"arange", "clone", "tensor"}
"""Calls whose result nothing else holds."""
_LEAVING = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete, ast.Try, ast.With)
_SIZES = frozenset({"shape", "size", "numel", "len", "ndim", "dim", "stride", "nelement"})
_ORIGIN = (ast.Name, ast.Subscript, ast.Attribute, ast.Call, ast.Starred, ast.IfExp, ast.BoolOp)


def target(node: ast.AST) -> ast.expr | None:
    """What a node writes to in place; None where it does not."""
    match node:
        case ast.Subscript(value=value, ctx=ast.Store()):
            return value
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr.endswith("_") and not attr.startswith("_"):
            return value
    return None


def unfit(node: ast.For | ast.While, over: ast.expr | None, test: ast.expr | None, end: ast.If | None) -> str:
    """Why a loop can be no operator by how it is written; nothing where it can.

    Its rounds leave it at one place at the most, and write to nothing but tensors with names.
    """
    if node.orelse:
        return "it has an `else`"
    if over is None and test is None and end is None:
        return "no `if` of its rounds ends with `break`"
    if isinstance(node, ast.For) and over is None:
        return f"it goes over {loop_reasons.part(node.iter)}, which is no `range`"
    if isinstance(node, ast.For) and end is None:
        return "no `if` of its rounds, without an `else`, ends with `break`"
    parts = [one for one in node.body if one is not end] + (end.body[:-1] if end is not None else [])
    for one in (each for part in parts for each in ast.walk(part)):
        if isinstance(one, (ast.Break, ast.Continue, ast.Return)):
            return f"{loop_reasons.part(one)} leaves a round at a second place"
        if isinstance(one, (*_LEAVING, ast.FunctionDef, ast.NamedExpr)):
            return f"a round holds {loop_reasons.part(one)}"
        if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
            return f"a round writes to {loop_reasons.part(one)}"
        written = target(one)
        if written is not None and not isinstance(written, ast.Name):
            return f"a round writes to {loop_reasons.part(written)}"
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in ("append", "extend"):
            return (
                f"{loop_reasons.part(one)} is no list of which the loop, over a range, reads the last element only and "
                "which gets something in every round or behind the last"
            )
    return ""


def unsound(function: ast.FunctionDef, loop: ast.For | ast.While, step: str, changed: set[str]) -> str:
    """Why a round may be no function of the names that it changes; nothing where it may.

    Args:
        function: in which the loop stands.
        loop: the loop.
        step: the name of its step.
        changed: the names.
    """
    parts: list[ast.AST] = [*loop.body, *([loop.test] if isinstance(loop, ast.While) else [])]
    inside = [one for part in parts for one in ast.walk(part)]
    rules: Sequence[tuple[str, Callable[[ast.AST], bool]]] = (
        ("asks for a size", _asks_for_a_size),
        ("calls something for what it does", _acts_otherwise),
        ("has a power whose exponent changes", lambda one: _is_power(one, changed | {step})),
    )
    for why, rule in rules:
        for one in inside:
            if rule(one):
                return f"{loop_reasons.part(one)} {why}"
    if _is_read_by_a_function(function, inside, changed):
        return "a function that is made in the same one reads what the rounds change"
    shared = next((name for name in sorted(in_place(inside)) if not _is_alone(function, loop, inside, name)), None)
    return "" if shared is None else f"`{shared}` is written to in place, and may have another name"


def _asks_for_a_size(node: ast.AST) -> bool:
    """Within such an operator torch takes free sizes for 2 or more."""
    return (isinstance(node, ast.Attribute) and node.attr in _SIZES) or (
        isinstance(node, ast.Name) and node.id == "len"
    )


def _acts_otherwise(node: ast.AST) -> bool:
    """Whether something is called for what it does: `self.damp(x)`, `F.relu(x, inplace=True)`."""
    match node:
        case ast.Expr(value=ast.Call() as call):
            return target(call) is None
        case ast.Call(keywords=keywords):
            return any(one.arg in ("inplace", "out", None) for one in keywords)
    return False


def _is_power(node: ast.AST, changed: set[str]) -> bool:
    """Of whole numbers Python's powers may be fractions; those of tensors are not."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and bool(_names(node.right) & changed)


def _is_read_by_a_function(function: ast.FunctionDef, inside: Iterable[ast.AST], changed: set[str]) -> bool:
    """Whether a function that is made in this one reads what changes: it would see what was there before."""
    own = {id(one) for one in inside}
    made = (
        one
        for one in ast.walk(function)
        if isinstance(one, (ast.Lambda, ast.FunctionDef, ast.GeneratorExp)) and one is not function
    )
    return any(bool(_names(one) & changed) for one in made if id(one) not in own)


def read_by_functions_before(function: ast.FunctionDef, loop: ast.stmt, changed: Collection[str]) -> set[str]:
    """Those of some names that functions read which are made in front of a loop: in a round they would see what was
    there before it.
    """
    made = (one for one in ast.walk(function) if isinstance(one, (ast.Lambda, ast.FunctionDef, ast.GeneratorExp)))
    before = [one for one in made if one is not function and one.lineno < loop.lineno]
    return {name for one in before for name in _outer_names(one) if name in changed}


def _outer_names(function: ast.Lambda | ast.FunctionDef | ast.GeneratorExp) -> set[str]:
    """The names that a function has of the one around it."""
    parts = [*ast.walk(function)]
    own = {one.arg for one in parts if isinstance(one, ast.arg)}
    given = {one.id for one in parts if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    outer = {name for one in parts if isinstance(one, ast.Nonlocal) for name in one.names}
    return _names(function) - own - (given - outer)


def in_place(inside: Iterable[ast.AST]) -> set[str]:
    """Names of what is written to in place, numbers among them: `x += 1` writes to a tensor."""
    found: set[str] = set()
    for one in inside:
        written = one.target if isinstance(one, ast.AugAssign) else target(one)
        if isinstance(written, ast.Subscript):
            written = written.value
        if isinstance(written, ast.Name):
            found.add(written.id)
    return found


def _is_alone(function: ast.FunctionDef, loop: ast.stmt, inside: Iterable[ast.AST], name: str) -> bool:
    """Whether what is written to in place has one name: it was made for it, and nothing else was made of it since."""
    names = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id == name]
    begun = [one for one in names if isinstance(one.ctx, ast.Store) and one.lineno < loop.lineno]
    if begun:
        last = max(begun, key=lambda one: (one.lineno, one.col_offset))
        given = next((value for target_, value in _assignments(function) if target_ is last), None)
        is_number = isinstance(given, (ast.Constant, ast.UnaryOp))
        is_new = isinstance(given, ast.BinOp) or (isinstance(given, ast.Call) and _called(given) in _FRESH)
        if not is_number and not is_new:
            return False
        since = (given.end_lineno or 0, given.end_col_offset or 0) if given is not None else (0, 0)
        if not is_number and any(since <= (one.lineno, one.col_offset) and one.lineno < loop.lineno for one in names):
            return False
        if any(_hands_on(one, name) or _keeps(one, name) for one in _behind(function, loop, since)):
            return False
    elif any(one.arg == name for one in ast.walk(function.args) if isinstance(one, ast.arg)):
        return False
    return not any(_hands_on(one, name) for one in inside)


def _behind(function: ast.FunctionDef, loop: ast.stmt, since: tuple[int, int]) -> Iterator[ast.AST]:
    """What stands behind a loop within loops around it, where these do not begin anew with what it writes to."""
    place = (loop.lineno, loop.col_offset)
    loops = [one for one in ast.walk(function) if isinstance(one, (ast.For, ast.While))]
    inside = {id(part) for one in loops if (one.lineno, one.col_offset) == place for part in ast.walk(one)}
    for around in loops:
        begin, end = (around.lineno, around.col_offset), (around.end_lineno or 0, around.end_col_offset or 0)
        if since < begin < place < end:
            yield from (one for one in ast.walk(around) if id(one) not in inside)


def _keeps(node: ast.AST, name: str) -> bool:
    """Whether something is called with a name's value itself, which it may keep: `kept.append(y)`."""
    if not isinstance(node, ast.Call):
        return False
    given = [*node.args, *(one.value for one in node.keywords)]
    return any(isinstance(one, ast.Name) and one.id == name for one in given)


def _hands_on(node: ast.AST, name: str) -> bool:
    """Whether a name is given to what a tensor, or a view of it, stands for."""
    values: list[ast.expr] = []
    match node:
        case ast.Assign(value=ast.Tuple(elts=elements)):
            values = elements
        case ast.Assign(value=value) | ast.NamedExpr(value=value) | ast.AnnAssign(value=ast.expr() as value):
            values = [value]
        case ast.List(elts=elements) | ast.Set(elts=elements):
            values = elements
    return any(isinstance(one, _ORIGIN) and name in _names(one) for one in values)


def _assignments(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    for one in ast.walk(function):
        if not isinstance(one, ast.Assign) or len(one.targets) != 1:
            continue
        match one:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                yield from zip(targets, values, strict=False)
            case ast.Assign(targets=[single], value=value):
                yield single, value


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
