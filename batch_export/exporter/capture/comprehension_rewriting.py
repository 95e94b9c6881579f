"""List comprehensions of a model's code over pieces of a tensor, written so that their element is a function.

Arrives: a function's code. Leaves: code that does the same, in which `[f(x) for x in pieces]` is a call with the
function and the pieces (`free_pieces.py`). Comprehensions with conditions, several loops or names of their own stay.
"""

from __future__ import annotations

import ast
from types import CodeType

from batch_export.exporter.capture import function_sources

MAPPED = "__mapped_over_pieces__"
"""What the new code calls."""
_OWN_SCOPE = (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)


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
        if any(isinstance(one, _OWN_SCOPE) for one in ast.walk(node)):
            return node
        self.count += 1
        name = ast.arg(arg=loop.target.id)
        names = ast.arguments(posonlyargs=[], args=[name], kwonlyargs=[], kw_defaults=[], defaults=[])
        call = ast.Call(ast.Name(MAPPED, ast.Load()), [ast.Lambda(names, node.elt), loop.iter], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))
