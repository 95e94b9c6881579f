"""During capture, `max` and `min` of tensors of one element: the one that Python keeps, which NaN never displaces.

Arrives: what either is called with. Leaves: the element that it gives, chosen by the data, or that there is none.
Numbers beside tensors are elements of their dtype; fractions that were read of data are chosen alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from batch_export.exporter.capture.guard_sources import running_line
from batch_export.exporter.capture.numbers_of_sizes import known_number

_FRACTIONS = (float, torch.SymFloat)
_TWO, _HALF = 2, 2
"""How many there are at least, and how many bytes a dtype has that rounds what people write."""


def are_alike(one: Any, other: Any) -> bool:
    """Whether both are tensors of one element of one dtype, or one of them is a number that such a tensor may have."""
    both = (one, other)
    tensors = [each for each in both if isinstance(each, torch.Tensor)]
    if not tensors or any(each.dim() or each.dtype != tensors[0].dtype for each in tensors):
        return False
    kinds = (int, float) if tensors[0].is_floating_point() else (int,)
    return all(isinstance(each, torch.Tensor) or type(each) in kinds for each in both)


def elements(args: Sequence[Any]) -> Sequence[torch.Tensor] | None:
    """Tensors of one element each, and numbers as such, of which one is given; None for anything else."""
    several: Any = args
    if len(args) == 1:
        (several,) = args
        if isinstance(several, torch.Tensor):
            several = several.unbind() if several.dim() == 1 and isinstance(several.shape[0], int) else ()
    if not isinstance(several, (list, tuple)) or len(several) < _TWO:
        return None
    tensors = [one for one in several if isinstance(one, torch.Tensor)]
    if not tensors or not all(_is_element(one) for one in tensors):
        return None
    first = tensors[0]
    if any(one.dtype != first.dtype or one.shape != first.shape for one in tensors):
        raise OtherKindsError(running_line())
    made = [_element(one, first) for one in several]
    return [one for one in made if one is not None] if all(one is not None for one in made) else None


class OtherKindsError(Exception):
    """Tensors of which data say which one is given are of several dtypes or shapes, where a program has one.

    Attributes:
        source: `file:line` in the model.
    """

    def __init__(self, source: str) -> None:
        super().__init__(
            "Python's max or min of tensors of several dtypes or shapes gives one of them, as the data say"
        )
        self.source = source


def _is_element(one: torch.Tensor) -> bool:
    return all(isinstance(size, int) and size == 1 for size in one.shape)


def _element(one: Any, like: torch.Tensor) -> torch.Tensor | None:
    """A tensor, or a number as one of the same dtype and shape, where it is no other number then."""
    dtype = like.dtype
    if isinstance(one, torch.Tensor):
        return one
    if type(one) not in (int, float) or not (dtype.is_floating_point or (type(one) is int and dtype is not torch.bool)):
        return None
    if dtype.is_floating_point:
        is_same = dtype.itemsize > _HALF or float(torch.tensor(one, dtype=dtype)) == one
    else:
        is_same = torch.iinfo(dtype).min <= one <= torch.iinfo(dtype).max
    return torch.full(like.shape, one, dtype=dtype) if is_same else None


def of_elements(one: Any, other: Any, *, is_most: bool) -> torch.Tensor:
    """As Python compares: the first one stays where the other is NaN, or it is.

    Of whole numbers that are known of sizes the result is known, too.
    """
    if not torch.compiler.is_dynamo_compiling() and all(map(_is_of_sizes, (one, other))):
        return torch.maximum(one, other) if is_most else torch.minimum(one, other)
    return torch.where(other > one if is_most else other < one, other, one)


def _is_of_sizes(one: torch.Tensor) -> bool:
    return not one.is_floating_point() and known_number(one) is not None


def are_read(numbers: Sequence[Any]) -> bool:
    """Whether there are fractions that were read of data, of which any may be NaN, and other fractions."""
    are_fractions = len(numbers) > 1 and all(type(one) in _FRACTIONS for one in numbers)
    return are_fractions and any(isinstance(one, torch.SymFloat) and not one.node.has_hint() for one in numbers)


def of_read(one: Any, other: Any, *, is_most: bool) -> Any:
    """The same of such fractions."""
    sides = [torch.scalar_tensor(each, dtype=torch.float64) for each in (one, other)]
    return of_elements(*sides, is_most=is_most).item()
