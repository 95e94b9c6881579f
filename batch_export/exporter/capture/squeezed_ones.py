"""Squeezes of axes that have one element whatever the free sizes are, such as that of `x[:, :1]`.

Arrives: a squeeze that a forward calls. Leaves: the same without those axes, or None where torch's own squeeze will do.
torch does not ask the example whether a size that it has no number for is 1, and keeps the axis.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

aten = torch.ops.aten

_SQUEEZES = (
    torch.squeeze,
    torch.Tensor.squeeze,
    aten.squeeze,
    *(getattr(aten.squeeze, overload) for overload in ("default", "dim", "dims")),
)
_LARGER = (0, 1, 2, 3, 4, 5, 8, 16, 31, 64, 1000)
"""What each free size of the example grows by when it is asked whether something of them stays 1."""


def squeezed(function: Any, args: Sequence[Any], given: Mapping[str, Any]) -> torch.Tensor | None:
    """A tensor without its axes of one element, where one of them has a size that is made of free ones.

    That it is 1 becomes a guard, which is tried like any other: the slice of an empty axis is empty.
    """
    if function not in _SQUEEZES:
        return None
    tensor, *rest = args if args else (given.get("input", given.get("self")),)
    asked = given.get("dim", rest[0] if len(rest) == 1 else tuple(rest))
    if not isinstance(tensor, torch.Tensor) or not (asked == () or _are_axes(asked)):
        return None
    listed = [asked] if isinstance(asked, int) else list(asked)
    if not all(-tensor.dim() <= axis < tensor.dim() for axis in listed):
        return None
    axes = [axis % tensor.dim() for axis in listed] if rest or "dim" in given else list(range(tensor.dim()))
    ones = [axis for axis in axes if _stays_one(tensor.shape[axis]) and bool(tensor.shape[axis] == 1)]
    if not ones:
        return None
    left = [axis - sum(one < axis for one in ones) for axis in axes if axis not in ones]
    for axis in sorted(ones, reverse=True):
        tensor = tensor.select(axis, 0)
    return tensor.squeeze(left) if left else tensor


def _are_axes(asked: object) -> bool:
    return isinstance(asked, int) or (isinstance(asked, (list, tuple)) and all(isinstance(one, int) for one in asked))


def _stays_one(size: Any) -> bool:
    """Whether a size that is computed from free ones is 1 in the example, and when all of them are larger."""
    if not isinstance(size, torch.SymInt) or not size.node.has_hint() or size.node.hint != 1:
        return False
    expression, environment = size.node.expr, size.node.shape_env
    if expression.is_Symbol or expression.is_number:
        return False
    return all(_at_larger(expression, environment, more) == 1 for more in _LARGER)


def _at_larger(expression: Any, environment: Any, more: int) -> float:
    try:
        hints = {symbol: environment.backed_var_to_val[symbol] + more for symbol in expression.free_symbols}
        return float(expression.xreplace(hints))
    except (AttributeError, KeyError, TypeError):
        return math.nan
