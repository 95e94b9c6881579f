"""Which of several translations of one operator takes the element types of a call.

Arrives: the functions that a caller registered for an operator, in the order of preference, and a call's arguments.
Leaves: the first one whose annotations allow these types. A function without annotations takes all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import onnx_ir as ir

Entry = TypeVar("Entry")


def first_fitting(
    entries: Sequence[tuple[Entry, Any]], args: Sequence[object], kwargs: Mapping[str, object]
) -> Entry | None:
    """The first entry whose function takes the arguments; the first one of all where none does.

    Args:
        entries: entries with their onnxscript functions.
        args: ONNX values and numbers, in order.
        kwargs: those by name.
    """
    fitting = (entry for entry, function in entries if _takes(function, args, kwargs))
    return next(fitting, entries[0][0] if entries else None)


def _takes(function: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    parameters = list(function.op_signature.params)
    by_name = {parameter.name: parameter for parameter in parameters}
    given: Iterable[tuple[Any, object]] = [
        *zip(parameters, args, strict=False),
        *((by_name[name], value) for name, value in kwargs.items() if name in by_name),
    ]
    bound: dict[str, object] = {}  # one letter in two places stands for one type
    for parameter, value in given:
        constraint = getattr(parameter, "type_constraint", None)
        if constraint is None or (known := _type_of(value)) is None:
            continue
        if known not in constraint.allowed_types or bound.setdefault(constraint.name, known) != known:
            return False
    return True


def _type_of(value: object) -> ir.TypeProtocol | None:
    if isinstance(value, ir.Value):
        return value.type
    if isinstance(value, (list, tuple)) and value:
        first = _type_of(value[0])
        return None if first is None else ir.SequenceType(first)
    return None
