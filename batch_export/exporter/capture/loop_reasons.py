"""Why loops of a model's code were not run as one operator, by the line that they begin at.

Arrives: a loop's file and line, and what in it nothing here follows. Leaves: that sentence, for the error of an axis
that the loop holds to the example's size. Sentences stand for as long as the process: code does not change.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Callable

_WHY: dict[tuple[str, int], str] = {}


def note(file: str, line: int, why: str) -> None:
    """Remembers why the loop at a line stays as it is."""
    _WHY[file, line] = why


def note_of(body: Callable[..., object], why: str) -> None:
    """The same of the loop whose round a function is, which stands at the loop's line."""
    code = inspect.unwrap(body).__code__
    note(code.co_filename, code.co_firstlineno, why)


def of_source(source: str) -> str:
    """What is known of a loop at `file:line`, or nothing."""
    file, _, line = source.rpartition(":")
    return _WHY.get((file, int(line)), "") if line.isdigit() else ""


def part(node: ast.AST) -> str:
    """A part of a round, with its line where it has one."""
    text = " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(node))).split())
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    if any(isinstance(one, ast.Name) and one.id.startswith("__") for one in ast.walk(node)):  # no text of the model's
        shown = "if ..." if isinstance(node, ast.If) else "..."
    line = getattr(node, "lineno", 0)
    return f"`{shown}` at line {line}" if line else f"`{shown}`"
