"""What an `if` asks of emptiness: whether a mask has anything, or indices any element, or a number of them is 0.

Arrives: the test of an `if` in a model's source. Leaves: what is asked about, and which answer means that there is
something. Nothing is run.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

_SWAPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_ANY = {("> 0"), (">= 1"), ("!= 0")}
_NONE = {("== 0"), ("< 1"), ("<= 0")}


@dataclass(frozen=True, slots=True)
class Emptiness:
    """A question whether there is anything.

    Attributes:
        kind: whether a mask has a place, indices have an element, or a number in a list of counts is not 0.
        subject: the mask, the indices, or the number.
        has_any: whether the test is true where there is something.
        answer_if_any: what Python is answered where there is: without the `not` around it.
    """

    kind: Literal["mask", "rows", "counts"]
    subject: ast.expr
    has_any: bool
    answer_if_any: bool


def asked_emptiness(test: ast.expr) -> Emptiness | None:
    """What a test asks; None where it asks something else."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        asked = asked_emptiness(test.operand)
        return None if asked is None else Emptiness(asked.kind, asked.subject, not asked.has_any, asked.answer_if_any)
    match test:
        case ast.Call(func=ast.Name(id="bool"), args=[truth]):
            return asked_emptiness(truth)
    counted, has_any = test, True
    if isinstance(test, ast.Compare):
        told = _against_nought(test)
        if told is None:
            return None
        counted, has_any = told
    counted = _without_item(counted)
    found = _counted(counted, compared=isinstance(test, ast.Compare))
    return None if found is None else Emptiness(*found, has_any, has_any)


def _against_nought(test: ast.Compare) -> tuple[ast.expr, bool] | None:
    """What is held against 0 or 1, and whether that is true where it counts something."""
    if len(test.ops) != 1:
        return None
    text = ast.unparse(test)
    left, right = test.left, test.comparators[0]
    sign = text[len(ast.unparse(left)) : len(text) - len(ast.unparse(right))].strip()
    if isinstance(left, ast.Constant):
        left, right, sign = right, left, _SWAPPED.get(sign, "")
    held = f"{sign} {ast.unparse(right)}"
    return (left, held in _ANY) if held in _ANY | _NONE else None


def _counted(counted: ast.expr, *, compared: bool) -> tuple[Literal["mask", "rows", "counts"], ast.expr] | None:
    match counted:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="any" | "sum" as name), args=[mask]):
            return ("mask", mask) if not counted.keywords and (name == "any") != compared and _is_read(mask) else None
        case ast.Call(func=ast.Attribute(value=mask, attr="any" | "sum" as name), args=[]):
            is_one = not counted.keywords and _is_read(mask)
            return ("mask", mask) if is_one and not (name == "any" and compared) else None
        case ast.Call(func=ast.Attribute(value=rows, attr="numel"), args=[]):
            return ("rows", rows) if _is_read(rows) else None
        case ast.Call(func=ast.Attribute(value=rows, attr="size"), args=[ast.Constant(value=0)]):
            return ("rows", rows) if _is_read(rows) else None
        case ast.Subscript(value=ast.Attribute(value=rows, attr="shape"), slice=ast.Constant(value=0)):
            return ("rows", rows) if _is_read(rows) else None
        case ast.Call(func=ast.Name(id="len"), args=[rows]):
            return ("rows", rows) if _is_read(rows) else None
        case ast.Subscript(value=ast.Name(), slice=place):
            return ("counts", counted) if _is_read(place) else None
    return None


def _without_item(value: ast.expr) -> ast.expr:
    is_item = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "item"
    return value.func.value if is_item and not value.args else value  # type: ignore[attr-defined]


def _is_read(expression: ast.expr) -> bool:
    """Whether an expression may be read once more: it calls nothing."""
    plain = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Compare, ast.cmpop, ast.expr_context)
    return all(isinstance(one, plain) for one in ast.walk(expression))
