"""Lines of a model that only raise an error: `assert` and `if ...: raise`, read from the source.

Arrives: a line at which something is asked. Leaves: what the answer has to be for nothing to be raised, and whether it
always is so then; or whether an error was raised there. Nothing is run.
"""

from __future__ import annotations

import ast
import functools
import traceback
from dataclasses import dataclass

from batch_export.exporter.capture.guard_sources import is_users
from batch_export.exporter.capture.parsed_files import parsed

_OF_PYTHON = (StopIteration, ZeroDivisionError)
"""What Python raises of numbers and lists that no tensor and no free size is in: those raise within torch."""


@dataclass(frozen=True, slots=True)
class Passing:
    """An answer at which a line raises nothing.

    Attributes:
        answer: to what is asked there.
        is_certain: whether the line always raises at the other answer.
        differs: whether the line asks if two things differ, which is answered by whether they are equal.
        is_assertion: whether it is an `assert`.
    """

    answer: bool
    is_certain: bool
    differs: bool
    is_assertion: bool


@dataclass(frozen=True, slots=True)
class _Raising:
    """A statement: what it asks, the lines on which it raises, and whether it does nothing else."""

    asked: ast.expr
    lines: frozenset[int]
    passing: Passing | None


def passing(file: str, line: int) -> Passing | None:
    """The answer by which a statement that does nothing but raise is passed by; None for any other line."""
    found = [one.passing for one in _statements(file) if _covers(one.asked, line)]
    return found[-1] if found else None


def raised_at(error: BaseException, file: str, line: int) -> bool:
    """Whether an error is the model's own `raise` or `assert` behind what a line asks, or one of plain Python there."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames or not is_users(file) or frames[-1][0].f_code.co_filename != file:
        return False
    if isinstance(error, _OF_PYTHON):
        return True
    return any(_covers(one.asked, line) and frames[-1][1] in one.lines for one in _statements(file))


def _covers(expression: ast.expr, line: int) -> bool:
    return expression.lineno <= line <= (expression.end_lineno or expression.lineno)


@functools.lru_cache(maxsize=16)
def _statements(file: str) -> list[_Raising]:
    tree = parsed(file)
    found: list[_Raising] = []
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assert):
            found.append(_Raising(node.test, _lines(node), _passing(node.test, truth=True, is_assertion=True)))
        elif isinstance(node, ast.If):
            raised = [one for one in (*node.body, *node.orelse) if isinstance(one, ast.Raise)]
            does_nothing_else = isinstance(node.body[-1], ast.Raise) and not node.orelse
            is_plain = all(isinstance(one, (ast.Raise, ast.Assign, ast.Expr)) for one in node.body)
            told = _passing(node.test, truth=False, is_assertion=False) if does_nothing_else and is_plain else None
            found.append(_Raising(node.test, frozenset().union(*map(_lines, raised)), told))
    return found


def _passing(test: ast.expr, *, truth: bool, is_assertion: bool) -> Passing | None:
    """What the parts of a test have to be, each by itself; None where that is not one answer for all of them."""
    if any(isinstance(one, (ast.NamedExpr, ast.IfExp, ast.comprehension, ast.Lambda)) for one in ast.walk(test)):
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _passing(test.operand, truth=not truth, is_assertion=is_assertion)
    if isinstance(test, ast.BoolOp):
        parts = {_passing(one, truth=truth, is_assertion=is_assertion) for one in test.values}
        (part,) = parts if len(parts) == 1 else (None,)
        if part is None:
            return None
        is_certain = part.is_certain and isinstance(test.op, ast.And if truth else ast.Or)
        return Passing(part.answer, is_certain, part.differs, is_assertion)
    differs = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq)
    is_certain = not isinstance(test, ast.Compare) or len(test.ops) == 1
    return Passing(truth, is_certain, differs, is_assertion)


def _lines(node: ast.stmt) -> frozenset[int]:
    return frozenset(range(node.lineno, (node.end_lineno or node.lineno) + 1))
