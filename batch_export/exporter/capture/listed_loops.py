"""List comprehensions of a model's code (`torch.stack([f(one) for one in x.unbind(1)])`), written as loops that append.

Arrives: a statement. Leaves: the same as a loop and a statement behind it, which `loop_rewriting.py` takes like any
other; also of `functools.reduce(f, rows)`, whose loop goes on from what `f` gives. Comprehensions stay that are not
evaluated first and in any case, or whose list is neither joined at once nor given a name.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

JOINING = frozenset(("stack", "cat", "concat", "hstack", "vstack"))
_FIRST = (ast.Name, ast.Attribute, ast.Constant, ast.expr_context, ast.operator)
"""What may be evaluated before a loop or behind it."""
_IN_ORDER = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Attribute, ast.Subscript, ast.Tuple, ast.keyword)
"""What evaluates all its parts, in the order in which the tree has them."""
_OWN_NAMES = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr)


@dataclass(frozen=True, slots=True)
class ListedLoop:
    """A comprehension as a loop.

    Attributes:
        begun: the empty list.
        loop: what fills it.
        behind: what is left of the statement; None where it only gave the list its name.
        summed: the name of the sum, where there is no list.
        is_reduction: whether it was `functools.reduce`.
    """

    begun: ast.stmt
    loop: ast.For
    behind: ast.stmt | None
    summed: str = ""
    is_reduction: bool = False


def as_loop(statement: ast.stmt, number: int) -> ListedLoop | None:
    """The first comprehension of a statement; None where there is none.

    Args:
        statement: which stays as it is.
        number: tells the names apart.
    """
    if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr)) or statement.value is None:
        return None
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.ListComp() as listed):
            loop = None if name in _names(listed) else _loop(listed, name, number)
            return None if loop is None else ListedLoop(_begun(name, listed), loop, None)
        case ast.AugAssign(target=target) if not isinstance(target, ast.Name):
            return None
    behind = copy.deepcopy(statement)
    assert isinstance(behind, (ast.Assign, ast.AugAssign, ast.Return, ast.Expr))
    name = f"__listed_{number}__"
    joined = _joined(behind.value)
    if joined is None:
        return None
    if _is_reduction(joined):
        return _reduced(behind, joined, name, number)
    inner = joined.args[0]
    assert isinstance(inner, (ast.ListComp, ast.GeneratorExp))
    is_sum = isinstance(joined.func, ast.Name)
    loop = _loop(inner, name, number, is_sum=is_sum)
    if loop is None:
        return None
    given = ast.copy_location(ast.Name(name, ast.Load()), inner)
    if is_sum:
        behind = _Replaced(joined, given).visit(behind)
    else:
        joined.args[0] = given
    begin = ast.Constant(0) if is_sum else ast.List([], ast.Load())
    return ListedLoop(_begun(name, inner, begin), loop, behind, name if is_sum else "")


def _joined(node: ast.AST | None) -> ast.Call | None:
    """The call that joins a comprehension's list or adds its elements, which is evaluated first but for names."""
    match node:
        case ast.Call(func=ast.Attribute(attr=attr, value=ast.Name()), args=[ast.ListComp(), *_]) if attr in JOINING:
            return node
        case ast.Call(func=ast.Name(id="sum"), args=[ast.ListComp() | ast.GeneratorExp()], keywords=[]):
            return node
        case ast.Call() if _is_reduction(node):
            return node
    for part in ast.iter_child_nodes(node) if isinstance(node, _IN_ORDER) else ():
        if (found := _joined(part)) is not None:
            return found
        if not all(isinstance(one, _FIRST) for one in ast.walk(part)):
            return None
    return None


def _is_reduction(node: ast.Call) -> bool:
    """Whether a call is `functools.reduce(f, rows)`, perhaps with what it begins with."""
    match node:
        case ast.Call(
            func=ast.Name(id="reduce") | ast.Attribute(value=ast.Name(id="functools"), attr="reduce"),
            args=[ast.Name() | ast.Attribute() | ast.Lambda() as function, _, *others],
            keywords=[],
        ):
            is_plain = all(isinstance(one, _FIRST) for one in ast.walk(function))
            return len(others) < 2 and (is_plain or isinstance(function, ast.Lambda))
    return False


def _reduced(
    behind: ast.Assign | ast.AugAssign | ast.Return | ast.Expr, call: ast.Call, name: str, number: int
) -> ListedLoop:
    """A reduction as a loop; without anything to begin with, its first round begins with nothing."""
    function, over, *begin = call.args
    element = f"__element_{number}__"
    made = ast.Call(function, [ast.Name(name, ast.Load()), ast.Name(element, ast.Load())], [])
    value: ast.expr = made
    if not begin:
        is_none = ast.Compare(ast.Name(name, ast.Load()), [ast.Is()], [ast.Constant(None)])
        value = ast.IfExp(is_none, ast.Name(element, ast.Load()), made)
    body = ast.Assign([ast.Name(name, ast.Store())], value)
    loop = ast.For(ast.Name(element, ast.Store()), over, [body], [])
    ast.fix_missing_locations(ast.copy_location(loop, call))
    left = _Replaced(call, ast.copy_location(ast.Name(name, ast.Load()), call)).visit(behind)
    return ListedLoop(
        _begun(name, call, begin[0] if begin else ast.Constant(None)), loop, left, name, is_reduction=True
    )


@dataclass(slots=True)
class _Replaced(ast.NodeTransformer):
    call: ast.Call
    given: ast.expr

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A name in the call's place."""
        return self.given if node is self.call else self.generic_visit(node)


def _begun(name: str, listed: ast.expr, begin: ast.expr | None = None) -> ast.stmt:
    made = ast.Assign([ast.Name(name, ast.Store())], ast.List([], ast.Load()) if begin is None else begin)
    return ast.fix_missing_locations(ast.copy_location(made, listed))


def _loop(listed: ast.ListComp | ast.GeneratorExp, name: str, number: int, *, is_sum: bool = False) -> ast.For | None:
    """A comprehension as a loop whose names are its own; None where it has conditions, or names within."""
    (one,) = listed.generators if len(listed.generators) == 1 else (None,)
    if one is None or one.ifs or one.is_async or any(isinstance(part, _OWN_NAMES) for part in ast.walk(listed.elt)):
        return None
    own = {each: f"__{each}_{number}__" for each in _names(one.target)}
    target, element = (_Renamed(own).visit(copy.deepcopy(part)) for part in (one.target, listed.elt))
    append = ast.Attribute(ast.Name(name, ast.Load()), "append", ast.Load())
    body: ast.stmt = ast.Expr(ast.Call(append, [element], []))
    if is_sum:
        total = ast.BinOp(ast.Name(name, ast.Load()), ast.Add(), element)
        body = ast.Assign([ast.Name(name, ast.Store())], total)
    loop = ast.For(target, one.iter, [body], [])
    return ast.fix_missing_locations(ast.copy_location(loop, listed))


def _names(node: ast.AST) -> Iterator[str]:
    return (one.id for one in ast.walk(node) if isinstance(one, ast.Name))


@dataclass(slots=True)
class _Renamed(ast.NodeTransformer):
    own: dict[str, str]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A name of the comprehension's own."""
        return ast.copy_location(ast.Name(self.own.get(node.id, node.id), node.ctx), node)
