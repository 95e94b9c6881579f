"""What a side of a choice by data computes, where the other side may hold.

Arrives: code of a side. Leaves: the same with calls for what may fail there, which an `if` would not have worked out: a
place that is outside of its axis (`x[i]`), a divisor that is zero.
"""

from __future__ import annotations

import ast
import copy
from typing import TypeVar

from batch_export.exporter.capture.choice_values import DIVIDED, READ

Node = TypeVar("Node", bound=ast.AST)


class _Computing(ast.NodeTransformer):
    """Writes what may fail where the other side holds as calls."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`x[i]`."""
        self.generic_visit(node)
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not isinstance(node.ctx, ast.Load) or all(isinstance(one, (ast.Slice, ast.Constant)) for one in places):
            return node
        return ast.Call(ast.Name(READ, ast.Load()), [node.value, *map(_as_place, places)], [])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`a // b`."""
        self.generic_visit(node)
        if not isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            return node
        kind = ast.Constant(type(node.op).__name__)
        return ast.Call(ast.Name(DIVIDED, ast.Load()), [kind, node.left, node.right], [])


def computing(node: Node) -> Node:
    """A part of a side so, which stays as it is itself."""
    made: Node = _Computing().visit(copy.deepcopy(node))
    return made


def _as_place(place: ast.expr) -> ast.expr:
    if not isinstance(place, ast.Slice):
        return place
    parts = [one or ast.Constant(None) for one in (place.lower, place.upper, place.step)]
    return ast.Call(ast.Name("slice", ast.Load()), parts, [])
