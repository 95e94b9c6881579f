"""Padding by a condition on sizes in code that is written anew (`x = F.pad(x, (0, 4 - n)) if n < 4 else x`).

Arrives: an expression of a model's source, or what it asks, a tensor and amounts. Leaves: a call in its place, or the
tensor padded by amounts that are 0 where the model does not pad. What is padded by nothing is a copy, and the program's
node says so. Where code cannot be written anew, `taken_pads.py` does the same.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import traceback

from batch_export.exporter.capture.number_choice import chosen
from batch_export.exporter.capture.size_questions import asked_sizes, is_arithmetic
from batch_export.exporter.capture.taken_pads import TAKEN

NAME = "__padded_by_sizes__"
"""What the new code calls."""


def pad(tensor: ast.expr, value: ast.expr, questions: ast.expr, *, answer: bool) -> ast.expr | None:
    """The call for a tensor that is padded at one answer and left as it is at the other; None for anything else.

    Args:
        tensor: what is padded.
        value: the padding.
        questions: what is asked, as the new code hands it over.
        answer: the answer at which it is padded.
    """
    match value:
        case ast.Call(func=function, args=[padded, *rest], keywords=keywords):
            given = [*rest, *(one.value for one in keywords)]
        case _:
            return None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name != "pad" or not isinstance(tensor, (ast.Name, ast.Attribute)) or ast.unparse(padded) != ast.unparse(tensor):
        return None
    if not given or any(one.arg is None for one in keywords) or not all(map(_is_given, given)):
        return None
    read = ast.parse(ast.unparse(tensor), mode="eval").body
    first = [questions, copy.deepcopy(function), read, ast.Constant(answer)]
    return ast.Call(ast.Name(NAME, ast.Load()), [*first, *copy.deepcopy(rest)], copy.deepcopy(keywords))


def _is_given(written: ast.expr) -> bool:
    """Whether it is arithmetic, or a number that is written as a text (`float("-inf")`)."""
    match written:
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant()], keywords=[]):
            return True
    return is_arithmetic(written)


def padded(
    questions: Sequence[tuple[Any, str, Any]],
    function: Callable[..., Any],
    tensor: Any,
    answer: bool,
    *rest: Any,
    **given: Any,
) -> Any:
    """A tensor, padded at one answer; its amounts are chosen where the answer is not the same at all sizes."""
    asked = asked_sizes(questions)
    amounts = rest[0] if rest else given.get("pad")
    if isinstance(asked, bool) or not _is_torchs(function, tensor, amounts):
        held = asked if isinstance(asked, bool) else any(one.holds for one in asked)
        return function(tensor, *rest, **given) if held == answer else tensor
    try:
        made = [chosen(one, 0, asked) if answer else chosen(0, one, asked) for one in amounts]  # type: ignore[union-attr]
    except ZeroDivisionError:  # at some sizes an amount is no number
        return function(tensor, *rest, **given) if any(one.holds for one in asked) == answer else tensor
    others = {name: one for name, one in given.items() if name != "pad"}
    with traceback.preserve_node_meta(), traceback.annotate({TAKEN: 0}):
        return function(tensor, made, *rest[1:], **others)


def _is_torchs(function: Any, tensor: Any, amounts: Any) -> bool:
    """Whether torch pads a tensor by whole numbers."""
    is_padding = function is torch.nn.functional.pad and isinstance(tensor, torch.Tensor)
    return (
        is_padding and isinstance(amounts, (tuple, list)) and all(type(one) in (int, torch.SymInt) for one in amounts)
    )
