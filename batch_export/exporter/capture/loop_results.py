"""What goes on in a loop and is written to, in rounds or behind it (`score += self.end`): whether it is known once.

Arrives: a function, a loop in it and the name of what goes on. Leaves: whether a copy may take its place. It may where
no other name that is read behind the loop, and no list, may hold the same tensor, or part of it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from batch_export.exporter.capture.begun_numbers import says_of_none

_APART = "__apart_behind_a_loop__"
_NEW = frozenset(
    {
        *("where", "max", "min", "amax", "amin", "argmax", "argmin", "sum", "mean", "prod", "logsumexp", "cumsum"),
        *(
            "exp",
            "log",
            "log1p",
            "sqrt",
            "tanh",
            "sigmoid",
            "relu",
            "softmax",
            "log_softmax",
            "softplus",
            "gelu",
            "silu",
        ),
        *("matmul", "mm", "bmm", "einsum", "outer", "dot", "lerp", "addcmul", "maximum", "minimum", "logaddexp"),
        *("cat", "concat", "stack", "gather", "index_select", "masked_fill", "abs", "neg", "sub", "add", "mul", "div"),
        *("clamp", "clone", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like"),
        *("new_zeros", "new_ones", "new_full"),
    }
)
"""Calls of torch's whose result is a tensor of its own."""
_FILLED = frozenset(
    ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
)
"""Those that no layer of that name (`self.relu`, which may work in place) can stand for."""


def stands_apart(function: ast.FunctionDef, loop: ast.For, name: str) -> bool:
    """Whether what a name stands for behind a loop is known by that name only.

    Args:
        function: in which the loop stands.
        loop: the loop.
        name: of what goes on from round to round.
    """
    inside = [each for part in loop.body for each in ast.walk(part)]
    alike = _alike(function, loop, name, inside)
    end = loop.end_lineno or loop.lineno
    names = [one for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]
    read_behind = {one.id for one in names if one.lineno > end}
    return not (alike - {name}) & read_behind and not alike & _kept(inside)


def written_anew(function: ast.FunctionDef, loop: ast.For, among: Iterable[str]) -> ast.For:
    """A loop in which `h = h * a` stands for `h *= a`, where `h` is a tensor that is known by that name only.

    Args:
        function: in which the loop stands.
        loop: the loop, which stays as it is.
        among: names that rounds write to so.
    """
    alone = {name for name in among if _is_alone(function, loop, name)}
    return _Anew(alone).visit(copy.deepcopy(loop)) if alone else loop


def _is_alone(function: ast.FunctionDef, loop: ast.For, name: str) -> bool:
    """Whether a name is given a new tensor in front of a loop, which nothing else holds or is part of."""
    first = [value for one in _before(function, loop) for names, value in _given(one) if name in names]
    is_new = bool(first) and all(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in _FILLED for one in first
    )
    around = [
        one
        for one in ast.walk(function)
        if isinstance(one, (ast.For, ast.While)) and one.lineno < loop.lineno <= (one.end_lineno or one.lineno)
    ]
    held = [each for one in (*around, loop) for part in one.body for each in ast.walk(part)]
    return is_new and _alike(function, loop, name, held) == {name} and name not in _kept(held)


class _Anew(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """`h *= a`."""
        if not isinstance(node.target, ast.Name) or node.target.id not in self.names:
            return node
        made = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.fix_missing_locations(ast.copy_location(ast.Assign([node.target], made), node))


def _alike(function: ast.FunctionDef, loop: ast.For, name: str, inside: Sequence[ast.AST]) -> set[str]:
    """The names of what may be the same tensor as one, or part of it, in front of a loop and in what rounds do."""
    alike, size = {name}, 0
    while len(alike) > size:
        size = len(alike)
        for targets, value in (pair for one in (*_before(function, loop), *inside) for pair in _given(one)):
            held = _held(value) - ({"self"} if isinstance(value, ast.Subscript) else set())  # one row of a parameter
            if targets & alike or held & alike:
                alike |= targets | held
    return alike


def _before(function: ast.FunctionDef, loop: ast.For) -> list[ast.AST]:
    return [one for one in ast.walk(function) if getattr(one, "lineno", loop.lineno) < loop.lineno]


def _kept(inside: Iterable[ast.AST]) -> set[str]:
    """The names of what rounds put into lists."""
    calls = (one for one in inside if isinstance(one, ast.Call) and _is_kept(one))
    return {each for one in calls for arg in one.args for each in _held(arg)}


def _given(node: ast.AST) -> Iterator[tuple[set[str], ast.expr]]:
    """Names, and what they are given."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            yield from ((_names(one), other) for one, other in zip(targets, values, strict=True))
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
            yield from ((_names(one), value) for one in targets)
        case ast.Assign(targets=targets, value=value):
            yield {name for one in targets if not _is_copied_into(one) for name in _names(one)}, value
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield _names(target), value


def _held(value: ast.expr) -> set[str]:
    """Names of what a value may be, or be part of."""
    match value:
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Constant():
            return set()
        case ast.Call(func=ast.Attribute(attr=attr)) if attr in _NEW:
            return set()
        case ast.Call(func=ast.Attribute(value=of), args=args, keywords=keywords):
            return {name for one in (of, *args, *(each.value for each in keywords)) for name in _held(one)}
        case ast.Subscript(value=of) | ast.Attribute(value=of) | ast.Starred(value=of):
            return _held(of)
    return _names(value)


def _is_kept(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "insert", "extend", "add", "update")


def _is_copied_into(target: ast.expr) -> bool:
    """Whether a target is a part of a tensor (`made[:, t] = h`), which gets a copy."""
    place = target.slice if isinstance(target, ast.Subscript) else None
    return any(isinstance(one, ast.Slice) for one in (place.elts if isinstance(place, ast.Tuple) else [place]))


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def copies(names: Iterable[str], number: int) -> list[ast.stmt]:
    """The statements that put copies in the place of results.

    Args:
        names: the results'.
        number: the loop's.
    """
    return [one for name in names for one in ast.parse(f"{name} = {_APART}({name}, __steps_{number}__)").body]


def _apart(value: Any, steps: Any) -> Any:
    """A copy; without rounds it is what was there before the loop: such sizes have to be tried."""
    says_of_none(steps.free_length())
    return value.clone() if isinstance(value, Tensor) else value


CALLED: Mapping[str, Any] = {_APART: _apart}
"""What the written code calls."""
