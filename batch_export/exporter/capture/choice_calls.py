"""What code that is written anew calls where a model chooses by sizes: numbers, sums, questions that exclude others.

Arrives: what is asked of sizes, and what is given to a name on both sides. Leaves: the one of the two, by arithmetic
(`number_choice.py`) where both are whole numbers; else what the model's own `if` would give.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from batch_export.exporter.capture import chosen_pads, chosen_parts
from batch_export.exporter.capture.number_choice import chosen, exclusive
from batch_export.exporter.capture.size_questions import asked_sizes

CHOSEN = "__chosen_by_sizes__"
"""What the new code calls for one of two numbers."""
APART = "__never_both__"
"""The same for an `elif` beside its `if`."""
ADDED = "__added_by_sizes__"
"""The same for `number += other`."""
IN_PLACE: Mapping[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "Add": (operator.add, operator.iadd),
    "Sub": (operator.sub, operator.isub),
    "Mult": (operator.mul, operator.imul),
    "FloorDiv": (operator.floordiv, operator.ifloordiv),
}
"""What `number += other` and the like compute, and how of a tensor."""


def _chosen(questions: Sequence[tuple[Any, str, Any]], then: Any, otherwise: Any) -> Any:
    """The one of two numbers, or tuples of numbers, that any of several questions chooses."""
    asked = asked_sizes(questions)
    if isinstance(asked, bool):
        return then if asked else otherwise
    if all(type(one) is tuple for one in (then, otherwise)) and len(then) == len(otherwise):
        return tuple(_chosen(questions, *two) for two in zip(then, otherwise, strict=True))
    if not all(type(one) in (int, torch.SymInt) for one in (then, otherwise)):
        return then if any(one.holds for one in asked) else otherwise
    try:
        return chosen(then, otherwise, asked)
    except ZeroDivisionError:  # at some sizes one of the two is no number, and a file would work out both
        return then if any(one.holds for one in asked) else otherwise


def _added(questions: Sequence[tuple[Any, str, Any]], number: Any, kind: str, other: Any, answer: bool) -> Any:
    """What `number += other` leaves at one answer, any of several questions or none, and else the number itself."""
    plain, in_place = IN_PLACE[kind]
    if all(type(one) in (int, torch.SymInt) for one in (number, other)):
        try:
            more = plain(number, other)
            return _chosen(questions, more, number) if answer else _chosen(questions, number, more)
        except ZeroDivisionError:  # where the model does not divide
            pass
    asked = asked_sizes(questions)
    held = asked if isinstance(asked, bool) else any(one.holds for one in asked)
    return in_place(number, other) if held == answer else number


def _never_both(questions: Sequence[tuple[Any, str, Any]], others: Sequence[tuple[Any, str, Any]]) -> None:
    """Ends a capture in which an `elif` would be asked beside its `if`, where both may be the case."""
    asked, other = asked_sizes(questions), asked_sizes(others)
    if asked is False or other is False:
        return
    if isinstance(asked, bool) or isinstance(other, bool) or not exclusive(asked, other):
        raise ValueError("an elif whose question may hold where that of its if does")


CALLED = {
    CHOSEN: _chosen,
    ADDED: _added,
    APART: _never_both,
    chosen_pads.NAME: chosen_pads.padded,
    **chosen_parts.names(),
}
"""What it calls, by name."""
