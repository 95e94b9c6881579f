"""Lists of numbers of free length, by what makes one of them of its step.

Arrives: the code of `number_lists.py`, with an element as a function of the step. Leaves: a list of free length that
functions of torch take for one tensor (`number_functions.py`). What an element is made of by anything else than
arithmetic and the functions there (a decision, what has a state) makes it a plain list, which holds the axis to the
example's size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from batch_export.exporter.capture.free_sequences import FreeNumbers, FreeSequence, Size
from batch_export.exporter.capture.number_functions import AT_ONCE, DOUBLE, StepNumber, UnknownNumberError, numbers_of


class FreeElements(FreeSequence):
    """A list of numbers by what makes one of them of its step.

    Args:
        element: that.
        steps: a range.
    """

    def __init__(self, element: Callable[[Any], Any], steps: FreeNumbers) -> None:
        self._element = element
        self._steps = steps

    def free_length(self) -> Size:
        """The number of elements."""
        return self._steps.free_length()

    def _made_plain(self) -> list[Any]:
        made = [self._element(step) for step in self._steps.plain()]
        return [one.as_kind() if isinstance(one, FreeSequence) else one for one in made]

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice) and place == slice(None, None, -1) and not self.is_plain:
            return FreeElements(self._element, self._steps[::-1])
        return self.plain()[place]

    def as_tensor(self) -> Tensor | None:
        """The list as a tensor of float64, int64 or truth values; None where elements are not followed."""
        if self.is_plain:
            return None
        token = AT_ONCE.set(True)
        try:
            axes = _axes(self)
            made = _filled(self, axes)
            sizes = [self.free_length(), *made.shape[1:]]
            return made.expand(sizes).clone()
        except Exception:  # whatever an element does with what is no number of Python's
            return None
        finally:
            AT_ONCE.reset(token)

    def at(self, axes: int) -> Tensor:
        """The elements along the first of so many axes."""
        return _filled(self._element(self._of_steps(axes)), axes - 1)

    def _of_steps(self, axes: int) -> StepNumber:
        if len(self._steps.runs) != 1:
            raise UnknownNumberError
        (run,) = self._steps.runs
        is_positive = all(type(one) is int and one >= 0 for one in (run.first, run.step))
        numbers: Tensor = run.first + run.step * torch.arange(run.length)
        return StepNumber(numbers.view(-1, *[1] * (axes - 1)), is_positive)

    def depth(self) -> int:
        """The number of its axes."""
        return 1 + _axes(self._element(self._of_steps(1)))


def _axes(one: Any) -> int:
    if isinstance(one, FreeElements):
        return one.depth()
    return 1 + _axes(one[0]) if isinstance(one, (list, tuple)) and one else 0


def _filled(one: Any, axes: int) -> Tensor:
    """An element with so many axes of its own, behind those of the steps that it goes by."""
    if isinstance(one, FreeElements):
        made = one.at(axes)
        sizes = list(made.shape)
        sizes[len(sizes) - axes] = one.free_length()
        return made.expand(sizes)
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
    """A list of what a function gives of each step."""
    if isinstance(steps, FreeNumbers) and not steps.is_plain:
        return FreeElements(element, steps)
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
        return function(numbers, *args, **given)
    made = numbers.as_tensor() if not args and given.keys() <= {*_NAMED} else None
    if made is None:
        return function(numbers.plain(), *args, **given)
    if function in _LEGACY:
        return made.to(_LEGACY[function] or torch.get_default_dtype())
    if made.dim() > 1 and not numbers.free_length() > 0:  # a guard: of nothing it has one axis
        return function([], *args, **given)
    dtype = given.get("dtype")
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Tensor):  # new_tensor
        return made.to(given.get("device") or owner.device, dtype or owner.dtype)
    if dtype is None and (made.dtype is DOUBLE or not numbers.free_length() > 0):  # a guard: of nothing it is float32
        dtype = torch.get_default_dtype()
    return made.to(given.get("device") or made.device, dtype or made.dtype)
