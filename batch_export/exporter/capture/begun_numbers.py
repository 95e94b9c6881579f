"""Numbers that a loop over a free size begins with (`total = 0`), as the tensors that its rounds make of them.

Arrives: a round, what it goes on from, and what it reads along an axis. Leaves: the same with tensors only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import sympy
import torch
from torch import Tensor
from torch.fx.experimental import symbolic_shapes

NUMBERS = (int, float)


def as_tensors(
    body: Callable[..., Any], carried: Sequence[Any], slices: Sequence[tuple[Any, int]]
) -> list[Tensor] | None:
    """What goes on, as tensors of the shape and dtype that a round gives; None where a round gives no tensor for one.

    Args:
        body: a round, which is run on tensors of any numbers; nothing reads what it gives.
        carried: tensors and numbers.
        slices: tensors, and the axis along which each is read.
    """
    if all(isinstance(one, Tensor) for one in carried):
        return list(carried)
    rows = [
        one.new_empty([size for at, size in enumerate(one.shape) if at != axis % one.dim()]) for one, axis in slices
    ]
    step = torch.zeros((), dtype=torch.int64)
    found, _ = body(tuple(carried), tuple(rows), step)
    if not all(isinstance(one, Tensor) for one in found):
        return None
    begun = [
        torch.full_like(new, one) if type(one) in NUMBERS else one for one, new in zip(carried, found, strict=True)
    ]
    again, _ = body(tuple(begun), tuple(rows), step)
    is_alike = all(
        one.dtype == new.dtype and list(one.shape) == list(new.shape) for one, new in zip(begun, again, strict=True)
    )
    return begun if is_alike else None


def said_of_none(length: Any) -> None:
    """Says that no rounds leave a number where the program has a tensor, for which sizes are tried."""
    if isinstance(length, torch.SymInt) and not length.node.expr.is_number:
        environment, shapes = length.node.shape_env, cast("Any", symbolic_shapes)
        condition = sympy.Ne(length.node.expr, 0, evaluate=False)
        environment.guards.append(shapes.ShapeGuard(condition, environment._get_sloc(), size_oblivious=False))
