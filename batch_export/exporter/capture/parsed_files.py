"""Files of a model's source as trees, in which a line is looked for that is being run.

Arrives: a file's name. Leaves: its tree, None where it has none. Nothing is run.
"""

from __future__ import annotations

import ast
import functools
import linecache

from batch_export.exporter.capture.counted_pieces import over_places
from batch_export.exporter.capture.returning_loops import left_by_break


@functools.lru_cache(maxsize=16)
def parsed(file: str) -> ast.Module | None:
    """The tree of a file, or of what was typed under its name; its loops as those of `function_sources.tree_of`."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    return _OfFunctions().visit(tree)  # type: ignore[no-any-return]


class _OfFunctions(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A function, with those within it."""
        return left_by_break(over_places(node))
