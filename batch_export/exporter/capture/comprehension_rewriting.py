"""List comprehensions of a model's code over pieces of a tensor, written so that their element is a function.

Arrives: a function's code. Leaves: code that does the same, in which `[f(x) for x in pieces]` is a call with the
function and the pieces (`free_pieces.py`). Comprehensions stay that have conditions or several loops, or call anything
but methods of the piece and functions of torch: what has a state is called for each piece (`next(numbers)`).
"""

from __future__ import annotations

import ast
from types import CodeType

from batch_export.exporter.capture import function_sources

MAPPED = "__mapped_over_pieces__"
"""What the new code calls."""
_PLAIN = (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp)
_LIBRARIES = frozenset(("torch", "nn", "F"))
"""Whose functions do nothing but give a result."""


def with_maps(code: CodeType) -> CodeType:
    """The same function, with comprehensions as calls; the code itself where it splits nothing by a list."""
    if "split" not in code.co_names or "tolist" not in code.co_names or code.co_name.startswith("<"):
        return code
    made = function_sources.tree_of(code)
    if made is None:
        return code
    changing = _Comprehensions()
    made.body = [changing.visit(one) for one in made.body]
    return (function_sources.compiled(made, code) or code) if changing.count else code


class _Comprehensions(ast.NodeTransformer):
    count = 0

    def visit_ListComp(self, node: ast.ListComp) -> ast.AST:
        """A comprehension."""
        self.generic_visit(node)
        (loop,) = node.generators if len(node.generators) == 1 else (None,)
        if loop is None or loop.ifs or loop.is_async or not isinstance(loop.target, ast.Name):
            return node
        if not _is_followed(node.elt, loop.target.id):
            return node
        self.count += 1
        name = ast.arg(arg=loop.target.id)
        names = ast.arguments(posonlyargs=[], args=[name], kwonlyargs=[], kw_defaults=[], defaults=[])
        call = ast.Call(ast.Name(MAPPED, ast.Load()), [ast.Lambda(names, node.elt), loop.iter], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))


def _is_followed(element: ast.expr, name: str) -> bool:
    """Whether an element is made of a piece, by its methods and by functions of torch, and of plain names."""
    for one in ast.walk(element):
        if isinstance(one, ast.Call):
            called = one.func
            if not isinstance(called, ast.Attribute):
                return False
            given = (*one.args, *(keyword.value for keyword in one.keywords))
            is_of_torch = _root(called) in _LIBRARIES and any(_reads(each, name) for each in given)
            if not is_of_torch and not _reads(called.value, name):
                return False
        elif isinstance(one, ast.expr) and not isinstance(one, _PLAIN):
            return False
    return True


def _reads(node: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
