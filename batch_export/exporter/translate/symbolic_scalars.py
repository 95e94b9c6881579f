"""Numbers that are known only when the model runs, where torch's operators take a Python number.

Arrives: an operator and its arguments. Leaves: whether such a number is among them, and the overload of the operator
that takes a tensor in its place. Translations that need the number itself, as an attribute, cannot take it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
import torch

from batch_export.exporter.graph import python_integers

_OF_NUMBERS = frozenset({"Scalar", "Tensor_Scalar"})
_FLOOR_DIVISIONS = frozenset({"_operator::floordiv", "math::floordiv"})


def given(target: object, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Whether an argument that torch takes as a number is an ONNX value."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    formals = target._schema.arguments
    pairs = [*zip(formals, args, strict=False), *((one, kwargs.get(one.name)) for one in formals)]
    return any(isinstance(value, ir.Value) and "Tensor" not in str(formal.type) for formal, value in pairs)


def tensor_overload(target: object) -> torch._ops.OpOverload | None:
    """The overload that takes a tensor in place of a number; None where there is none."""
    if not isinstance(target, torch._ops.OpOverload) or target._overloadname not in _OF_NUMBERS:
        return None
    packet = target.overloadpacket
    return packet.Tensor if "Tensor" in packet.overloads() else None


def is_plain_quotient(qualified: str, args: Sequence[object], fakes: Sequence[object]) -> bool:
    """Whether a floor division divides what is never negative, so that rounding down is rounding towards zero.

    Args:
        qualified: the operator.
        args: its arguments: ONNX values for numbers that are known only when the model runs, others as they are.
        fakes: torch's symbolic numbers for the former, in order.
    """
    if qualified not in _FLOOR_DIVISIONS or len(args) != 2:
        return False
    if sum(isinstance(arg, ir.Value) for arg in args) != len(fakes):
        return False
    left = iter(fakes)
    dividend, divisor = (next(left) if isinstance(arg, ir.Value) else arg for arg in args)
    return python_integers.rounds_alike(dividend, divisor)
