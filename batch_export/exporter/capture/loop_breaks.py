"""Loops that end at a step (`for t in range(n): if t >= k: break`), as loops over fewer steps.

Arrives: a loop. Leaves: the same over `range(min(n, k))` without that question, or nothing of another loop. What is
compared with the step has to be the same in each round.
"""

from __future__ import annotations

import ast
import copy

from batch_export.exporter.capture.loop_choices import names_given
from batch_export.exporter.capture.size_questions import is_arithmetic

_SEVERAL = 2


def over_fewer(loop: ast.For) -> ast.For | None:
    """A loop over those steps that come before the end; None where nothing ends it so."""
    match loop:
        case ast.For(
            target=ast.Name(id=step),
            iter=ast.Call(func=ast.Name(id="range"), args=[*limits], keywords=[]),
            body=[ast.If(test=ast.Compare() as test, body=[ast.Break()], orelse=[]), *rest],
            orelse=[],
        ) if rest and 1 <= len(limits) <= _SEVERAL and not any(isinstance(one, ast.Starred) for one in limits):
            pass
        case _:
            return None
    end = _end(test, step)
    if end is None or not is_arithmetic(end):
        return None
    read = {one.id for one in ast.walk(end) if isinstance(one, ast.Name)}
    parts = [one for each in loop.body for one in ast.walk(each)]
    if read & {step, *names_given(loop.body)} or (_has_parts(end) and any(map(_is_given, parts))):
        return None
    fewer = ast.Call(ast.Name("min", ast.Load()), [copy.deepcopy(limits[-1]), end], [])
    over = ast.Call(ast.Name("range", ast.Load()), [*copy.deepcopy(limits[:-1]), fewer], [])
    made = ast.For(loop.target, over, rest, [], loop.type_comment)
    for one in ast.walk(over):
        ast.copy_location(one, loop.iter)
    return ast.fix_missing_locations(ast.copy_location(made, loop))


def _has_parts(end: ast.expr) -> bool:
    return any(isinstance(one, (ast.Attribute, ast.Subscript)) for one in ast.walk(end))


def _is_given(part: ast.AST) -> bool:
    """Whether an attribute or an element is given a value."""
    return isinstance(part, (ast.Attribute, ast.Subscript)) and not isinstance(part.ctx, ast.Load)


def _end(test: ast.Compare, step: str) -> ast.expr | None:
    """The first step at which the loop ends."""
    match test:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.GtE() | ast.Gt() as kind], comparators=[limit]):
            pass
        case ast.Compare(left=limit, ops=[ast.LtE() | ast.Lt() as kind], comparators=[ast.Name(id=name)]):
            pass
        case _:
            return None
    if name != step:
        return None
    limit = copy.deepcopy(limit)
    return limit if isinstance(kind, (ast.GtE, ast.LtE)) else ast.BinOp(limit, ast.Add(), ast.Constant(1))
