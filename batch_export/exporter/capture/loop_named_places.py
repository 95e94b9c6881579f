"""Places of a loop's round that have names (`start = t * hop`, then `out[start : start + k] += x[t]`), without these.

Arrives: a loop of a model's code, and the name of its step. Leaves: one whose indices say their places by the step, so
that it can be told where rounds read and write.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Mapping

from batch_export.exporter.capture import loop_statements
from batch_export.exporter.capture.loop_places import degree


def by_step(loop: ast.For, step: str, known: Collection[str], kept: Collection[str]) -> ast.For:
    """A loop whose indices have what a name stands for in its place; the loop itself where there is none.

    A name counts that a round gives one value, before it is read, by the step and by what stays; it is left out where
    nothing else reads it.

    Args:
        loop: the loop.
        step: its name for the step.
        known: the names of the function.
        kept: names that are read behind the loop, or by a later round.
    """
    changed, made = loop_statements.stored(loop) | _written(loop, known) | _arguments(loop), loop
    places: dict[str, ast.expr] = {}
    for one in loop.body:
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in kept and step not in changed:
                place = _Placed(places).placed(value)
                read = {part.id for part in ast.walk(place) if isinstance(part, ast.Name)}
                if degree(place, step) == 1 and not read & changed and _is_given_once(loop, name, one):
                    places[name] = place
                    made = _with_place(made, name, place)
    return made


def _written(loop: ast.For, known: Collection[str]) -> set[str]:
    parts = (each for one in loop_statements.parts(loop.body) for each in loop_statements.written(one, known))
    return {each.id for one in parts for each in ast.walk(one) if isinstance(each, ast.Name)}


def _arguments(loop: ast.For) -> set[str]:
    """The names that functions within take for their arguments."""
    return {one.arg for one in loop_statements.parts(loop.body) if isinstance(one, ast.arg)}


def _is_given_once(loop: ast.For, name: str, statement: ast.stmt) -> bool:
    """Whether a name has the value that a statement gives it wherever a round reads it."""
    place = loop.body.index(statement)
    names = [one for one in loop_statements.parts(loop.body) if isinstance(one, ast.Name) and one.id == name]
    before = [one for one in loop_statements.parts(loop.body[:place]) if isinstance(one, ast.Name) and one.id == name]
    return not before and sum(map(loop_statements.is_store, names)) == 1 and name not in _arguments(loop)


class _Placed(ast.NodeTransformer):
    """Indices with values in place of names."""

    def __init__(self, places: Mapping[str, ast.expr]) -> None:
        self.places, self._depth = places, 0

    def placed(self, value: ast.expr) -> ast.expr:
        """An expression that an index stands for."""
        self._depth += 1
        made: ast.expr = self.visit(copy.deepcopy(value))
        self._depth -= 1
        return made

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """What is indexed, and the index with the value."""
        node.value = self.visit(node.value)
        self._depth += 1
        node.slice = self.visit(node.slice)
        self._depth -= 1
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The value in an index, the name elsewhere."""
        if not self._depth or node.id not in self.places or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(copy.deepcopy(self.places[node.id]), node)


def _with_place(loop: ast.For, name: str, value: ast.expr) -> ast.For:
    body = [_Placed({name: value}).visit(copy.deepcopy(one)) for one in loop.body]
    read = (one for one in loop_statements.parts(body) if isinstance(one, ast.Name) and one.id == name)
    if all(map(loop_statements.is_store, read)):
        body = [one for one in body if not _gives(one, name)]
    if not body:
        return loop
    made = ast.copy_location(ast.For(loop.target, loop.iter, body, loop.orelse, loop.type_comment), loop)
    return ast.fix_missing_locations(made)


def _gives(statement: ast.stmt, name: str) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id=given)]):
            return given == name
    return False
