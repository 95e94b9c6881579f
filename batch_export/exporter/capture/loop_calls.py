"""What the code of a loop over a free size calls beside the operator (`loop_code.py`): small things of its rounds.

Arrives: tensors, lists and numbers of a model, as its code has them. Leaves: what stands in their place.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from batch_export.exporter.capture.begun_numbers import IS_TRIED, says_of_none
from batch_export.exporter.capture.free_sequences import FreeNumbers, FreeRows
from batch_export.exporter.capture.loop_pieces import LoopPieces
from batch_export.exporter.capture.loop_reach import goes_evenly
from batch_export.exporter.capture.loop_windows import expression


def turned(of: Any, name: str) -> Any:
    """The attribute `T` or `mT` of something; of a matrix by a call."""
    is_matrix = isinstance(of, Tensor) and (name == "mT" or of.dim() == 2)
    return of.transpose(-2, -1) if is_matrix else getattr(of, name)


def joined(begun: Any, rows: Any, dim: int) -> Any:
    """A tensor that has grown by a part in each round; it may have begun as nothing.

    Args:
        begun: the tensor, or None.
        rows: the parts.
        dim: along which they lie.
    """
    if begun is None:
        says_of_none(rows.free_length())
    parts = rows.grown(dim) if isinstance(rows, LoopPieces) else rows.joined(dim)
    return parts if begun is None else torch.cat([begun, parts], dim)


def new_list(of: Any, key: str) -> list[Any] | None:
    """A list in the place of an empty one that only a dict knows; nothing of any other."""
    alone: dict[str, list[Any]] = {key: []}
    is_of_dict = type(of) is dict and type(of.get(key)) is list and not of[key]
    return [] if is_of_dict and sys.getrefcount(of[key]) <= sys.getrefcount(alone[key]) else None


def limits(steps: Any) -> tuple[Any, Any]:
    """The lowest step and the highest one of a loop over whole numbers; nothing of others."""
    if not isinstance(steps, FreeNumbers) or steps.is_plain or not goes_evenly(steps):
        return None, None
    run = steps.runs[0]
    first, last = _plain(run.first), _plain(run.first + run.step * (run.length - 1))
    return (first, last) if run.step > 0 else (last, first)


def _plain(size: Any) -> Any:
    """A number that is the same at all sizes as Python's."""
    return int(expression(size)) if expression(size).is_number else size


def number_of(count: Any, lowest: Any, highest: Any) -> Any:
    """The step of a round as a number, which data say; where a round is only tried, the lowest one."""
    if not isinstance(count, Tensor) or IS_TRIED.get():
        return lowest
    number: Any = count.item()
    torch._check(number >= lowest)
    torch._check(number <= highest)
    return number


def as_tensor(numbers: Any, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of whole numbers, some of which are tensors already."""
    parts = numbers if isinstance(numbers, list) else [numbers]
    found = next((one.device for one in parts if isinstance(one, Tensor)), None)
    made = [torch.as_tensor(one, dtype=dtype or torch.int64, device=device or found).clone() for one in parts]
    return torch.stack(made) if isinstance(numbers, list) else made[0]


def sum_of(one: Any) -> Tensor | None:
    """What `sum` gives of tensors of a free number, in their dtype, of none of which it is a number; None elsewhere."""
    if not isinstance(one, FreeRows) or one.is_plain or one.tail is not None or one.rows.dtype is torch.bool:
        return None
    length = one.rows.shape[0]
    if expression(length).is_Symbol:  # of other lengths there may be none where there are numbers, and those agree
        says_of_none(length)
    return one.rows.sum(0, dtype=one.rows.dtype)


def final_count(steps: Any, first: Any, stride: Any) -> Any:
    """What a counter is behind a loop that has added as much in each round."""
    return first + stride * steps.free_length()


def last_step(steps: Any) -> Any:
    """The step of the last round, which there is where there are rounds."""
    length = steps.free_length()
    says_of_none(length)
    (run,) = steps.runs
    return run.first + run.step * (length - 1)


def as_slice(given: Any, before: Any) -> Any:
    """What is written to a slice of a tensor, as it is read there; `before` is what the last round wrote."""
    if not isinstance(before, Tensor):
        return given
    made = given if isinstance(given, Tensor) else torch.scalar_tensor(given, device=before.device)
    return made.to(before.dtype).expand(before.shape)
