"""An `if` on data in a loop's round whose sides only write (`if row.sum() > 0: total += row`, `out[i] = row`).

Arrives: such an `if`. Leaves: the same writes one after the other, each of which leaves all as it is where its side
does not hold: what is added is nothing then, and what is written is what stands there. So a loop over a free size whose
rounds have such an `if` can be one operator, which knows what it writes to (`loop_rewriting.py`); elsewhere the `if`
stays.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from batch_export.exporter.capture import size_decisions
from batch_export.exporter.capture.choice_forms import is_asked_alone, is_known_place, is_plain
from batch_export.exporter.capture.forced_decisions import OneWayOnlyError
from batch_export.exporter.capture.loop_guarded_reads import IN_ROUND

BY_DATA_ALONE = "__by_data_alone_in_a_choice__"
ADDEND, PLACED = "__addend_in_a_choice__", "__placed_in_a_choice__"
"""What the new code calls: a question that data answer, what is added, and what is written to a place."""
_SUMS = (ast.Add, ast.Sub)


def is_of_writes(node: ast.If) -> bool:
    """Whether both sides only add to names and places or write to places, and one does."""
    if _place_of(node):
        return True
    writes = [one for one in (*node.body, *node.orelse) if not isinstance(one, ast.Pass)]
    return bool(writes) and all(map(_is_write, writes)) and is_asked_alone(node.test)


def _place_of(node: ast.If) -> str:
    """The place that each side writes to once, or not at all, with all that is asked within it; empty for none."""
    places = set()
    for side in (node.body, node.orelse):
        match [one for one in side if not isinstance(one, ast.Pass)]:
            case []:
                pass
            case [ast.If() as inner]:
                places.add(_place_of(inner))
            case [ast.Assign(targets=[target]) as one] if _is_write(one):
                places.add(ast.unparse(target))
            case _:
                return ""
    return places.pop() if len(places) == 1 and is_asked_alone(node.test) else ""


def _is_write(statement: ast.stmt) -> bool:
    match statement:
        case ast.AugAssign(target=ast.Name(), op=op, value=value):
            return isinstance(op, _SUMS) and is_plain(value)
        case ast.AugAssign(target=ast.Subscript(value=ast.Name()) as target, op=op, value=value):
            return isinstance(op, _SUMS) and is_plain(value) and _is_place(target)
        case ast.Assign(targets=[ast.Subscript(value=ast.Name()) as target], value=value):
            return is_plain(value) and _is_place(target)
    return False


def _is_place(target: ast.Subscript) -> bool:
    places = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
    return all(map(is_known_place, places))


def in_round(node: ast.If, as_calls: Callable[[ast.expr], ast.expr]) -> list[ast.stmt]:
    """The writes of both sides, for a round.

    Args:
        node: the `if`.
        as_calls: an expression, with calls for what may fail where the side does not hold.
    """
    if place := _place_of(node):
        there = ast.parse(place, mode="eval").body
        target = ast.parse(f"{place} = None").body[0]
        assert isinstance(target, ast.Assign)
        return [ast.Assign(target.targets, _placed_at(node, there, as_calls))]
    asked = ast.parse(f"__asked_{node.lineno}__ = None").body[0]
    assert isinstance(asked, ast.Assign)
    asked.value = _by_data(node, as_calls)
    made: list[ast.stmt] = [asked]
    for side, holds in ((node.body, True), (node.orelse, False)):
        for one in (one for one in side if not isinstance(one, ast.Pass)):
            question = ast.Name(f"__asked_{node.lineno}__", ast.Load())
            made.append(_written(copy.deepcopy(one), question, holds, as_calls))
    return made


def _by_data(node: ast.If, as_calls: Callable[[ast.expr], ast.expr]) -> ast.expr:
    question = size_decisions.as_calls(as_calls(node.test))
    return ast.Call(ast.Name(BY_DATA_ALONE, ast.Load()), [question], [])


def _placed_at(node: ast.If, there: ast.expr, as_calls: Callable[[ast.expr], ast.expr]) -> ast.expr:
    """What the sides write, as one value."""
    values: list[ast.expr] = []
    for side in (node.body, node.orelse):
        match [one for one in side if not isinstance(one, ast.Pass)]:
            case [ast.If() as inner]:
                values.append(_placed_at(inner, there, as_calls))
            case [ast.Assign(value=value)]:
                values.append(as_calls(value))
            case _:
                values.append(copy.deepcopy(there))
    return ast.Call(ast.Name(PLACED, ast.Load()), [_by_data(node, as_calls), *values, copy.deepcopy(there)], [])


def _written(statement: ast.stmt, asked: ast.expr, holds: bool, as_calls: Callable[[ast.expr], ast.expr]) -> ast.stmt:
    match statement:
        case ast.AugAssign(op=op, value=value):
            told = [ast.Constant(holds), ast.Constant(isinstance(op, ast.Add))]
            statement.value = ast.Call(ast.Name(ADDEND, ast.Load()), [asked, as_calls(value), *told], [])
        case ast.Assign(targets=[target], value=value):
            there = ast.parse(ast.unparse(target), mode="eval").body
            values = [as_calls(value), there] if holds else [there, as_calls(value)]
            statement.value = ast.Call(ast.Name(PLACED, ast.Load()), [asked, *values, copy.deepcopy(there)], [])
    return statement


def _in_round() -> bool:
    return False


def _by_data_alone(asked: Any) -> Tensor:
    """What is asked, which data answer."""
    if not isinstance(asked, Tensor):
        raise OneWayOnlyError("an `if` in a round is decided by something else than data")
    return asked.reshape(()).to(torch.bool)


def _addend(asked: Tensor, value: Any, holds: bool, is_added: bool) -> Tensor:
    """What is added, or taken away: nothing where the side does not hold, by which -0.0 stays -0.0.

    Args:
        asked: what was asked.
        value: what the side adds.
        holds: what it holds for.
        is_added: whether it adds.
    """
    if not isinstance(value, Tensor):
        raise OneWayOnlyError("an `if` in a round adds a number")
    nothing: complex = 0
    if is_added and (value.is_floating_point() or value.is_complex()):
        nothing = complex(-0.0, -0.0) if value.is_complex() else -0.0
    other = torch.full_like(value, nothing)
    return torch.where(asked, value, other) if holds else torch.where(asked, other, value)


def _placed(asked: Tensor, value: Any, other: Any, there: Any) -> Tensor:
    """What is written to a place.

    Args:
        asked: what was asked.
        value, other: what is written where that holds, and where it does not.
        there: what stands there.
    """
    if not isinstance(there, Tensor):
        raise OneWayOnlyError("an `if` in a round writes to an element of no tensor")
    return torch.where(asked, _as_there(value, there), _as_there(other, there))


def _as_there(value: Any, there: Tensor) -> Tensor:
    made = value if isinstance(value, Tensor) else torch.full((), value, dtype=there.dtype, device=there.device)
    return made.to(there.dtype).expand(there.shape)


CALLED = {IN_ROUND: _in_round, BY_DATA_ALONE: _by_data_alone, ADDEND: _addend, PLACED: _placed}
"""What it calls, by name."""
