"""Files of a model's source as trees, in which a line is looked for that is being run.

Arrives: a file's name. Leaves: its tree, None where it has none. Nothing is run.
"""

from __future__ import annotations

import ast
import functools
import linecache


@functools.lru_cache(maxsize=16)
def parsed(file: str) -> ast.Module | None:
    """The tree of a file, or of what was typed under its name."""
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
