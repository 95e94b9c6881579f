"""Numbers that a loop over a free size begins with (`total = 0`), as the tensors that its rounds make of them.

Arrives: a round, what it goes on from, and what it reads along an axis. Leaves: the same with tensors only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

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
