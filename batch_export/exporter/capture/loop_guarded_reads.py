"""What a choice of values by data reads at the step's place of a loop (`if row > 0: total = total + x[i]`).

Arrives: a loop whose choices are written out (`data_choices.py`), with calls for reads that may fail where the other
side holds, and the name of its step. Leaves: one in which those by the step alone are plain indices again, and an `if`
that only writes is what it is for a round. A step is a whole number of the loop's, so that such a read fails at the
same sizes on either side: where the loop is run as one operator it is known to be within.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from batch_export.exporter.capture.choice_values import COMPUTED, READ

IN_ROUND = "__in_a_round_of_a_choice__"
"""Called by code that is there for an operator's round alone: in no run is it true."""
_SLICE = "slice"

Loop = TypeVar("Loop", bound=ast.For | ast.While)


def by_step(loop: ast.For, step: str) -> ast.For:
    """A loop as its rounds are to be read; the loop itself where it is so.

    Args:
        loop: the loop.
        step: its name for the step.
    """
    body = [*_of_round(loop.body)]
    if body == loop.body and not any(_is_read(one, step) for one in ast.walk(loop)):
        return loop
    made = copy.deepcopy(loop)
    made.body = [_Plain(step, loop).visit(copy.deepcopy(one)) for one in body]
    return ast.fix_missing_locations(made)


def without_looks(loop: Loop) -> Loop:
    """A loop without what is there for no round, such as a look at what choices append to; itself where there is none.

    It goes over the same part of the tree, so that a loop that is not followed is the one that is written.
    """
    if not any(isinstance(one, ast.If) and _is_for_none(one.test) for one in ast.walk(loop)):
        return loop
    made = copy.copy(loop)
    made.body = [_WithoutLooks().visit(copy.deepcopy(one)) for one in loop.body]
    return ast.fix_missing_locations(made)


def _is_for_none(test: ast.expr) -> bool:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id=name))):
            return name == IN_ROUND
    return False


class _WithoutLooks(ast.NodeTransformer):
    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Nothing, or the `if`."""
        return None if _is_for_none(node.test) else self.generic_visit(node)


def _of_round(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a round, with the writes of such an `if` in its place."""
    for one in statements:
        match one:
            case ast.If(test=ast.Call(func=ast.Name(id=name)), body=writes) if name == IN_ROUND:
                yield from writes
            case _:
                yield one


def _is_read(node: ast.AST, step: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(), *places]) if name == READ:
            names = {each.id for one in places for each in ast.walk(one) if isinstance(each, ast.Name)}
            return names - {_SLICE} == {step}
    return False


class _Plain(ast.NodeTransformer):
    """Writes such calls as indices."""

    def __init__(self, step: str, loop: ast.For) -> None:
        self._step = step
        found = [one for one in ast.walk(loop) if isinstance(one, ast.Call) and _is_read(one, step)]
        self._read = {one.args[0].id: _index_of(one) for one in found if isinstance(one.args[0], ast.Name)}

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`x[i]` behind a call."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == COMPUTED:
            called: ast.AST = _Of(self._read).visit(node)
            return called
        if not _is_read(node, self._step):
            return node
        return _index_of(node)


class _Of(ast.NodeTransformer):
    """Says of what is read at the step's place alone that methods are called of what stands there."""

    def __init__(self, read: Mapping[str, ast.Subscript]) -> None:
        self._read = read

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The name of a tensor."""
        return copy.deepcopy(self._read.get(node.id, node))


def _index_of(call: ast.Call) -> ast.Subscript:
    of, *places = call.args
    parts = [_as_index(one) for one in places]
    index = parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load())
    return ast.copy_location(ast.Subscript(of, index, ast.Load()), call)


def _as_index(place: ast.expr) -> ast.expr:
    match place:
        case ast.Call(func=ast.Name(id=name), args=[first, last, stride]) if name == _SLICE:
            parts = [
                None if isinstance(one, ast.Constant) and one.value is None else one for one in (first, last, stride)
            ]
            return ast.Slice(*parts)
    return place
