"""Writes by a mask behind the question whether it has anything: `if mask.any(): x[mask] = value`.

Arrives: the frame of a model's code that asks something of data. Leaves: whether what stands behind the question does
nothing where the answer is no, so that a capture may go there in any case. Nothing is run.
"""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from types import FrameType

import torch

from batch_export.exporter.capture.parsed_files import parsed
from batch_export.exporter.capture.read_values import value_of

_METHODS = frozenset(("to", "type_as", "float", "half", "double", "bfloat16", "clone", "detach"))
"""What may be called of what is written: it gives the same, as another kind."""


@dataclass(frozen=True, slots=True)
class _MaskedWrites:
    """An `if` that asks if a mask has anything, and writes where it has.

    Attributes:
        first: the first line of what is asked.
        last: its last line.
        mask: the mask, a name.
        writes: what is written to, and what is written.
    """

    first: int
    last: int
    mask: ast.Name
    writes: tuple[tuple[ast.expr, ast.expr], ...]


def does_nothing_otherwise(frame: FrameType) -> bool:
    """Returns whether a line asks if a mask has anything, and all that hangs on it are writes where it has.

    What is written is one value for all places: one for each would have to be as many as there are.
    """
    found = (one for one in _found(frame.f_code.co_filename) if one.first <= frame.f_lineno <= one.last)
    asked = next(found, None)
    mask = None if asked is None else value_of(asked.mask, frame)
    if asked is None or not isinstance(mask, torch.Tensor) or mask.dtype is not torch.bool:
        return False
    for target, value in asked.writes:
        written, rank = value_of(target, frame), _rank(value, frame)
        if not isinstance(written, torch.Tensor) or rank is None or rank > written.dim() - mask.dim():
            return False
    return True


def _rank(node: ast.expr, frame: FrameType) -> int | None:
    """The number of axes of what an expression gives; None where it is not known, or may fail for some data."""
    if isinstance(node, ast.BinOp):
        ranks = [_rank(one, frame) for one in (node.left, node.right)]
        known = [one for one in ranks if one is not None]
        return max(known) if len(known) == len(ranks) else None
    if isinstance(node, ast.UnaryOp):
        return _rank(node.operand, frame)
    if isinstance(node, ast.Call):
        is_kind = isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS
        return _rank(node.func.value, frame) if is_kind else None  # type: ignore[attr-defined]
    if isinstance(node, ast.Subscript):
        place = value_of(node.slice, frame)
        held = value_of(node.value, frame) if isinstance(node.value, (ast.Name, ast.Attribute)) else None
        is_place = isinstance(place, (int, torch.SymInt)) and not isinstance(place, bool)
        if isinstance(held, torch.Tensor) and is_place:
            return held.dim() - 1
        return _rank_of(held[place]) if isinstance(held, (list, tuple)) and type(place) is int else None
    return _rank_of(value_of(node, frame)) if isinstance(node, (ast.Name, ast.Attribute, ast.Constant)) else None


def _rank_of(value: object) -> int | None:
    if isinstance(value, torch.Tensor):
        return value.dim()
    return 0 if isinstance(value, (int, float, torch.SymInt, torch.SymFloat)) else None


@functools.lru_cache(maxsize=16)
def _found(file: str) -> tuple[_MaskedWrites, ...]:
    tree = parsed(file)
    if tree is None:
        return ()
    found = (_masked_writes(node) for node in ast.walk(tree) if isinstance(node, ast.If))
    return tuple(one for one in found if one is not None)


def _masked_writes(node: ast.If) -> _MaskedWrites | None:
    mask = _asked(node.test)
    writes = [] if mask is None or node.orelse else [_write(one, mask) for one in node.body]
    kept = tuple(one for one in writes if one is not None)
    if mask is None or not kept or len(kept) < len(writes):
        return None
    return _MaskedWrites(node.test.lineno, node.test.end_lineno or node.test.lineno, mask, kept)


def _write(statement: ast.stmt, mask: ast.Name) -> tuple[ast.expr, ast.expr] | None:
    """What `x[mask] = value` and `x[mask] += value` write to, and what; None for any other statement."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AugAssign):
        target, value = statement.target, statement.value
    else:
        return None
    if not isinstance(target, ast.Subscript) or ast.unparse(target.slice) != mask.id:
        return None
    names = {one.id for part in (target.value, value) for one in ast.walk(part) if isinstance(one, ast.Name)}
    is_plain = isinstance(target.value, (ast.Name, ast.Attribute)) and mask.id not in names
    return (target.value, value) if is_plain else None


def _asked(test: ast.expr) -> ast.Name | None:
    """The mask of `mask.any()`, `torch.any(mask)` or `mask.sum() > 0`, a name; None for anything else."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Gt):
        right = test.comparators[0]
        is_nought = isinstance(right, ast.Constant) and type(right.value) is int and right.value == 0
        return _reduced(_item_of(test.left), "sum") if is_nought else None
    if (
        isinstance(test, ast.Call)
        and isinstance(test.func, ast.Name)
        and test.func.id == "bool"
        and len(test.args) == 1
    ):
        test = test.args[0]
    return _reduced(_item_of(test), "any")


def _item_of(value: ast.expr) -> ast.expr:
    """`value` of `value.item()`."""
    is_item = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item"
    return value.func.value if is_item and not value.args else value  # type: ignore[attr-defined]


def _reduced(value: ast.expr, name: str) -> ast.Name | None:
    is_method = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == name
    if not is_method or value.keywords or len(value.args) > 1:  # type: ignore[attr-defined]
        return None
    of_torch = ast.unparse(value.func.value) == "torch"  # type: ignore[attr-defined]
    if of_torch != bool(value.args):  # type: ignore[attr-defined]
        return None
    mask = value.args[0] if of_torch else value.func.value  # type: ignore[attr-defined]
    return mask if isinstance(mask, ast.Name) else None
