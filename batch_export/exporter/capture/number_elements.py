"""Lists of numbers of free length, by what makes one of them of its step.

Arrives: the code of `number_lists.py`, with an element as a function of the step. Leaves: a list of free length that
functions of torch take for one tensor (`number_functions.py`). What an element is made of by anything else than
arithmetic and the functions there (a decision, what has a state) makes it a plain list, which holds the axis to the
example's size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from batch_export.exporter.capture.free_sequences import FreeNumbers, FreeSequence, Size
from batch_export.exporter.capture.number_functions import AT_ONCE, DOUBLE, StepNumber, UnknownNumberError, numbers_of


class FreeElements(FreeSequence):
    """A list of numbers, or of such lists.

    Args:
        numbers: them as float64, int64 or truth values, along the first axis.
    """

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers

    def free_length(self) -> Size:
        """The number of elements."""
        return self.numbers.shape[0]

    def _made_plain(self) -> list[Any]:
        made: list[Any] = self.numbers.tolist()
        return made

    def __getitem__(self, place: Any) -> Any:
        is_turned = isinstance(place, slice) and place == slice(None, None, -1) and not self.is_plain
        return FreeElements(self.numbers.flip(0)) if is_turned else self.plain()[place]


@dataclass(frozen=True, slots=True)
class _Rows:
    """A list by what makes one of its elements of the step, within one of another list."""

    element: Callable[[Any], Any]
    steps: FreeNumbers

    def filled(self, axes: int) -> Tensor:
        """The list with so many axes, behind those of the steps that its elements go by besides."""
        made = _filled(self.element(self._of_steps(axes)), axes - 1)
        sizes = list(made.shape)
        sizes[len(sizes) - axes] = self.steps.free_length()
        return made.expand(sizes)

    def axes(self) -> int:
        """The number of its axes."""
        return 1 + _axes(self.element(self._of_steps(1)))

    def _of_steps(self, axes: int) -> StepNumber:
        if len(self.steps.runs) != 1:
            raise UnknownNumberError
        (run,) = self.steps.runs
        is_positive = all(type(one) is int and one >= 0 for one in (run.first, run.step))
        numbers: Tensor = run.first + run.step * torch.arange(run.length)
        return StepNumber(numbers.view(-1, *[1] * (axes - 1)), is_positive)


def _axes(one: Any) -> int:
    if isinstance(one, _Rows):
        return one.axes()
    return 1 + _axes(one[0]) if isinstance(one, (list, tuple)) and one else 0


def _filled(one: Any, axes: int) -> Tensor:
    """An element with so many axes of its own, behind those of the steps that it goes by."""
    if isinstance(one, _Rows):
        return one.filled(axes)
    if isinstance(one, (list, tuple)):
        parts = [_filled(each, axes - 1) for each in one]
        if any(part.dtype is torch.bool for part in parts) and any(part.dtype is not torch.bool for part in parts):
            raise UnknownNumberError
        if any(part.dtype is DOUBLE for part in parts):
            parts = [part.to(DOUBLE) for part in parts]
        rank = max(max(part.dim() for part in parts), axes)
        parts = [part.view(*[1] * (rank - part.dim()), *part.shape) for part in parts]
        return torch.cat(torch.broadcast_tensors(*parts), rank - axes)
    numbers = numbers_of(one)
    return numbers.view(*[1] * (axes - numbers.dim()), *numbers.shape) if numbers.dim() < axes else numbers


def listed(element: Callable[[Any], Any], steps: Any) -> Any:
    """A list of what a function gives of each step, at once: what its names stand for may change."""
    if isinstance(steps, FreeNumbers) and not steps.is_plain:
        rows = _Rows(element, steps)
        if AT_ONCE.get():
            return rows
        token = AT_ONCE.set(True)
        try:
            return FreeElements(rows.filled(rows.axes()).clone())
        except Exception:  # whatever an element does with what is no number of Python's
            pass
        finally:
            AT_ONCE.reset(token)
    return [element(step) for step in steps]


_LEGACY = {
    torch.LongTensor: torch.int64,
    torch.IntTensor: torch.int32,
    torch.FloatTensor: torch.float32,
    torch.DoubleTensor: torch.float64,
    torch.Tensor: None,
}
_NAMED = ("dtype", "device", "requires_grad")


def taken(function: Callable[..., Any], numbers: Any, *args: Any, **given: Any) -> Any:
    """What makes a tensor of numbers, which may be those of a list of free length.

    Args:
        function: that.
        numbers: the list, or whatever it is called with.
        args, given: what it is called with besides.
    """
    if not isinstance(numbers, FreeElements):
        return _of_sizes(function, numbers) if function in _LEGACY else function(numbers, *args, **given)
    made = numbers.numbers
    if args or not given.keys() <= {*_NAMED}:
        return function(numbers.plain(), *args, **given)
    if made.dim() > 1 and not numbers.free_length() > 0:  # a guard: of nothing it has one axis
        return function([], *args, **given)
    if function in _LEGACY:
        return made.to(_LEGACY[function] or torch.get_default_dtype())
    dtype = given.get("dtype")
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Tensor):  # new_tensor
        return made.to(given.get("device") or owner.device, dtype or owner.dtype)
    if dtype is None and (made.dtype is DOUBLE or not numbers.free_length() > 0):  # a guard: of nothing it is float32
        dtype = torch.get_default_dtype()
    return made.to(given.get("device") or made.device, dtype or made.dtype)


def _of_sizes(kind: Any, numbers: Any) -> Any:
    """A tensor of an older kind of a list, of which sizes stay free."""
    dtype = _LEGACY[kind] or torch.get_default_dtype()
    if isinstance(numbers, FreeNumbers) and not numbers.is_plain:
        return numbers.as_tensor(dtype)
    leaves = pytree.tree_leaves(numbers) if type(numbers) is list else []
    is_free = any(isinstance(one, (torch.SymInt, torch.SymFloat)) for one in leaves)
    return torch.tensor(numbers, dtype=dtype) if is_free else kind(numbers)
