"""The words of a program at the places where it failed: of each failing statement, and of what made the layer in it.

An exception arrives, sets of words leave, the place that raised first. Sources are read, nothing is run.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from torch import nn

_WORD = re.compile(r"[A-Za-z_]\w*")
_OWN = "batch_export"


def frames(error: BaseException) -> list[FrameType]:
    """Returns the frames of an error that are no part of torch or of this package, the one that raised first."""
    steps = list(_steps(error))
    kept = []
    for one in reversed(steps):
        module = str(one.tb_frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("torch", _OWN):
            kept.append(one.tb_frame)
    return kept


def words_at(error: BaseException) -> list[str]:
    """Returns the words at the places where an error came through, each once, those of the innermost place first."""
    found: dict[str, None] = {}
    steps = {id(step.tb_frame): step for step in _steps(error)}
    for frame in frames(error):
        statement = _statement(steps[id(frame)])
        found.update(dict.fromkeys(_WORD.findall(statement)))
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module):
            for made in _made_by(type(owner), set(_WORD.findall(statement))):
                found.update(dict.fromkeys(_WORD.findall(made)))
    return list(found)


def _steps(error: BaseException) -> Iterator[TracebackType]:
    """The steps of an error's traceback, and then those of what it was raised from."""
    raised: BaseException | None = error
    while raised is not None:
        step = raised.__traceback__
        while step is not None:
            yield step
            step = step.tb_next
        raised = raised.__cause__


def _statement(step: TracebackType) -> str:
    positions = list(step.tb_frame.f_code.co_positions())[step.tb_lasti // 2]
    first, last = positions[0] or step.tb_lineno, positions[1] or step.tb_lineno
    name = step.tb_frame.f_code.co_filename
    return "".join(linecache.getline(name, line) for line in range(first, last + 1))


def _made_by(kind: type[Any], attributes: set[str]) -> Iterator[str]:
    """The statements of a class' `__init__` that assign one of these attributes."""
    try:
        source = textwrap.dedent(inspect.getsource(kind.__init__))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr in attributes:
                yield ast.get_source_segment(source, node) or ""


def comparisons_at(error: BaseException) -> list[tuple[Any, str, str]]:
    """Returns the attributes that the checks compared which raised, innermost first, with what `self` was there.

    Each is the dotted name of one side and of the other, without `self`, of an `a != b` in whose branch the error was
    raised: `self.x.width != self.y.width` gives `x.width` and `y.width`.
    """
    found: list[tuple[Any, str, str]] = []
    steps = {id(step.tb_frame): step for step in _steps(error)}
    for frame in frames(error):
        line = steps[id(frame)].tb_lineno
        for test in _tests(frame, line):
            one, other = _dotted(test.left), _dotted(test.comparators[0])
            if one and other:
                found.append((frame.f_locals.get("self"), one, other))
    return found


def _tests(frame: FrameType, line: int) -> list[ast.Compare]:
    """The comparisons by `!=` in the `if` statements around a line, the nearest first."""
    try:
        lines, start = inspect.getsourcelines(frame.f_code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return []
    inside = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        and any(one.lineno <= line - start + 1 <= (one.end_lineno or 0) for one in node.body)
    ]
    tests = [test for node in reversed(inside) for test in ast.walk(node.test) if isinstance(test, ast.Compare)]
    return [test for test in tests if isinstance(test.ops[0], ast.NotEq) and len(test.ops) == 1]


def _dotted(node: ast.expr) -> str:
    """`self.x.y` as `x.y`; empty for anything else."""
    written = ast.unparse(node)
    return written.removeprefix("self.") if re.fullmatch(r"self(\.\w+)+", written) else ""
