"""Lists that a model's code makes of a free size (`list(range(n))`, `list(x)`, `[0] * n`), whose length stays free.

Arrives: what `len`, `range`, `list` and `tuple` are called with in a model's code while torch captures it. Leaves: for
a free size or a tensor whose first axis is free an object that knows its elements by a rule, and in functions of torch
what they are as one tensor. Whatever else is done with it (a loop, `append`, a search) makes it a plain list, as Python
would have done at once, which holds the axis to the example's size.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from batch_export.exporter.capture.kept_rows import note_read
from batch_export.exporter.capture.named_loops import note

Size = Any
"""A number that may be a torch.SymInt."""


@dataclass(frozen=True, slots=True)
class Run:
    """Whole numbers at equal distances: `first`, `first + step`, and so on, `length` of them; any number, at none."""

    first: Size
    step: Size
    length: Size

    def at(self, place: Size) -> Size:
        """One of them, counted from 0."""
        return self.first if _is_none(self.step) else self.first + self.step * place

    def part(self, start: Size, stop: Size, stride: int) -> Run:
        """Every so many of them from one place up to another, both within the run and not negative."""
        length = torch.sym_max((stop - start + stride - 1) // stride, 0)
        return Run(self.at(start), self.step * stride, length)

    def backwards(self) -> Run:
        """The same from the end."""
        return Run(self.at(self.length - 1), -self.step, self.length)


class FreeSequence:
    """What stands for a list or a range of free length; plain once something was done that no rule follows."""

    kind: type = list
    _plain: list[Any] | None = None

    def free_length(self) -> Size:
        """The number of elements."""
        raise NotImplementedError

    def _made_plain(self) -> list[Any]:
        raise NotImplementedError

    @property
    def is_plain(self) -> bool:
        """Whether it is a list of Python's by now, which may have been changed."""
        return self._plain is not None

    def plain(self) -> list[Any]:
        """The elements as Python has them, for which it counts with the size."""
        if self._plain is None:
            self._plain = self._made_plain()
        return self._plain

    def as_kind(self) -> Any:
        """The same as a list, a tuple or a range of Python's."""
        return self.plain() if self.kind is list else self.kind(self.plain())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.as_kind(), name)

    def __len__(self) -> int:
        return len(self.plain()) if self.is_plain else operator.index(self.free_length())

    def __bool__(self) -> bool:
        return bool(self.plain()) if self.is_plain else bool(self.free_length() > 0)

    def __iter__(self) -> Iterator[Any]:
        if not self.is_plain:
            note(1, is_of_numbers=isinstance(self, FreeNumbers))
        return iter(self.plain())

    def __reversed__(self) -> Iterable[Any]:
        return Backwards(self)  # type: ignore[arg-type]  # one of these two

    def __contains__(self, one: object) -> bool:
        return one in self.plain()

    def __setitem__(self, place: Any, value: Any) -> None:
        self.plain()[place] = value

    def __delitem__(self, place: Any) -> None:
        del self.plain()[place]

    def __eq__(self, other: object) -> bool:
        return bool(self.as_kind() == (other.as_kind() if isinstance(other, FreeSequence) else other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Any:
        return self.as_kind() + (other.as_kind() if isinstance(other, FreeSequence) else other)

    def __radd__(self, other: Any) -> Any:
        return other + self.as_kind()

    def __mul__(self, times: Any) -> Any:
        return self.as_kind() * times

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return repr(self.as_kind())


@dataclass(slots=True)
class Backwards:
    """What `reversed` gives of such a list: an iterator that is made when it is asked for."""

    of: FreeNumbers | FreeRows
    elements: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        if self.elements is None and not self.of.is_plain:
            note(1, is_of_numbers=isinstance(self.of, FreeNumbers))
        return self

    def __next__(self) -> Any:
        if self.elements is None:
            self.elements = iter(self.of.plain()[::-1])
        return next(self.elements)


class FreeNumbers(FreeSequence):
    """Numbers in runs, each of which but the last has a known length."""

    def __init__(self, runs: Sequence[Run], kind: type) -> None:
        self.runs = tuple(runs)
        self.kind = kind

    def free_length(self) -> Size:
        """The number of elements."""
        return sum((run.length for run in self.runs[1:]), self.runs[0].length)

    def _made_plain(self) -> list[Any]:
        return [number for run in self.runs for number in _plain_range(run)]

    def as_tensor(self, dtype: torch.dtype | None = None, device: Any = None) -> Tensor:
        """The numbers as a tensor; one of no numbers has torch's default dtype, so that a guard tells of it."""
        if self.is_plain:
            return torch.tensor(self._plain, dtype=dtype, device=device)
        parts = [_run_as_tensor(run, device) for run in self.runs]
        made = parts[0] if len(parts) == 1 else torch.cat(parts)
        if dtype is None and not self.free_length() > 0:
            dtype = torch.get_default_dtype()
        return made if dtype is None else made.to(dtype)

    def _like(self, runs: Sequence[Run]) -> FreeNumbers:
        return FreeNumbers(runs, self.kind)

    def __getitem__(self, place: Any) -> Any:
        if self.is_plain:
            return self.plain()[place]
        made = self._slice(place) if isinstance(place, slice) else self._element(place)
        return self.as_kind()[place] if made is None else made

    def _element(self, place: Any) -> Size | None:
        if not isinstance(place, int):
            return None
        runs = self.runs if place >= 0 else tuple(run.backwards() for run in reversed(self.runs))
        left = place if place >= 0 else -1 - place
        for run in runs:
            if left < run.length:  # a guard where the length is free
                return run.at(left)
            if not isinstance(run.length, int):
                return None
            left -= run.length
        return None

    def _slice(self, wanted: slice) -> FreeNumbers | None:
        stride = 1 if wanted.step is None else wanted.step
        if stride == -1 and wanted.start is None and wanted.stop is None:
            return self._like([run.backwards() for run in reversed(self.runs)])
        if not isinstance(stride, int) or stride < 1 or not all(isinstance(run.length, int) for run in self.runs[:-1]):
            return None
        length = self.free_length()
        start, stop = (_bounded(end, length, other) for end, other in ((wanted.start, 0), (wanted.stop, length)))
        if not isinstance(start, int) and len(self.runs) > 1:
            return None
        parts, begins = [], 0
        for run in self.runs:
            ends = begins + run.length
            if isinstance(ends, int) and isinstance(start, int) and start >= ends:
                begins = ends
                continue
            last = run is self.runs[-1]
            until = stop if last else torch.sym_min(stop, ends)
            parts.append(run.part(start - begins, until - begins, stride))
            if not last:
                start += (ends - start + stride - 1) // stride * stride
            begins = ends
        return self._like(parts) if parts else None

    def __add__(self, other: Any) -> Any:
        joined = _runs(other) if self.kind is list and not self.is_plain else None
        are_known = all(isinstance(run.length, int) for run in self.runs)
        return super().__add__(other) if joined is None or not are_known else self._like([*self.runs, *joined])

    def __radd__(self, other: Any) -> Any:
        joined = _runs(other) if self.kind is list and not self.is_plain else None
        return super().__radd__(other) if joined is None else self._like([*joined, *self.runs])


def as_index(one: Any) -> Any:
    """An index with lists and ranges of whole numbers as tensors."""
    if type(one) is builtins.tuple:
        return tuple(map(as_index, one))
    is_list = isinstance(one, FreeNumbers) and not one.is_plain and one.kind in (builtins.list, builtins.range)
    return one.as_tensor(torch.int64) if is_list else one


class FreeRows(FreeSequence):
    """The slices of a tensor along its first axis, and perhaps something of another size behind them."""

    def __init__(self, rows: Tensor, kind: type) -> None:
        self.rows = rows
        self.kind = kind
        self.tail: Tensor | None = None

    def free_length(self) -> Size:
        """The number of elements."""
        return self.rows.shape[0] + (self.tail is not None)

    def _made_plain(self) -> list[Any]:
        return [*self.rows, *([] if self.tail is None else [self.tail])]

    def append(self, one: Any) -> None:
        """The same as a list's; a tensor is copied."""
        is_fitting = isinstance(one, Tensor) and one.dtype == self.rows.dtype and one.dim() == self.rows.dim() - 1
        if self.is_plain or self.tail is not None or not is_fitting or self.kind is not builtins.list:
            self.as_kind().append(one)
            return
        pairs = zip(one.shape, self.rows.shape[1:], strict=True)
        if all(statically_known_true(size == other) for size, other in pairs):
            self.rows = torch.cat([self.rows, one.unsqueeze(0)])
        else:
            self.tail = one.clone()
        note_read((one, self.rows), (), self.free_length())

    def __getitem__(self, place: Any) -> Any:
        if self.is_plain or self.tail is not None:
            return self.as_kind()[place]
        if isinstance(place, slice) and (place.step is None or (isinstance(place.step, int) and place.step > 0)):
            return FreeRows(self.rows[place], self.kind)
        if isinstance(place, slice) and place == slice(None, None, -1):
            return FreeRows(self._turned(), self.kind)
        return self.rows[place] if isinstance(place, (int, torch.SymInt)) else self.as_kind()[place]

    def reverse(self) -> None:
        """The same as a list's."""
        if self.is_plain or self.tail is not None:
            self.plain().reverse()
        else:
            self.rows = self._turned()

    def _turned(self) -> Tensor:
        """In the other order; Python's list has the same slices, and this is a copy."""
        turned = self.rows.flip(0)
        note_read((self.rows, turned), (), self.free_length())
        return turned

    def stacked(self, dim: int = 0) -> Tensor:
        """Beside one another, along an axis of their own."""
        if self.tail is not None:
            return torch.stack(self.plain(), dim)
        return self.rows.movedim(0, dim).clone(memory_format=torch.contiguous_format)

    def joined(self, dim: int = 0) -> Tensor:
        """Behind one another along one of their axes."""
        dim %= self.rows.dim() - 1
        made = self.rows.movedim(0, dim).flatten(dim, dim + 1).clone(memory_format=torch.contiguous_format)
        return made if self.tail is None else torch.cat([made, self.tail], dim)


def _is_none(step: Size) -> bool:
    return isinstance(step, int) and step == 0


def _run_as_tensor(run: Run, device: Any) -> Tensor:
    if _is_none(run.step):
        return torch.full((run.length,), run.first, device=device)
    made: Tensor = run.first + run.step * torch.arange(run.length, device=device)
    return made


def _plain_range(run: Run) -> Sequence[Any]:
    if _is_none(run.step):
        return [run.first] * operator.index(run.length)
    first, step, length = map(operator.index, (run.first, run.step, run.length))
    return range(first, first + step * length, step)


def _bounded(end: Any, length: Size, other: Size) -> Size:
    """An end of a slice as a place that is not negative nor beyond the length."""
    if end is None:
        return other
    if isinstance(end, int) and end == 0:
        return 0
    if end < 0:
        return torch.sym_max(length + end, 0)
    return torch.sym_min(end, length) if other is length else end


def _runs(given: Any) -> list[Run] | None:
    """Whole numbers of a list as runs; None where there are others."""
    if isinstance(given, FreeNumbers):
        return None if given.is_plain or given.kind is not list else builtins.list(given.runs)
    if type(given) is not list or not all(type(one) in (int, torch.SymInt) for one in given):
        return None
    return [Run(one, 1, 1) for one in given]


def length_of(one: Any) -> Size | None:
    """What `len` gives of something of free length; None elsewhere."""
    if isinstance(one, FreeSequence):
        return None if one.is_plain else one.free_length()
    return one.shape[0] if _has_free_rows(one) else None


def range_of(*given: Any) -> FreeSequence | None:
    """What `range` gives of free sizes; None elsewhere."""
    if not any(isinstance(one, torch.SymInt) for one in given) or len(given) > 3:
        return None
    if not all(isinstance(one, (int, torch.SymInt)) for one in given):
        return None
    start, stop, step = (0, *given, 1) if len(given) == 1 else (*given, 1)[:3]
    if not isinstance(step, int) or step == 0:
        return None
    over = stop - start + step - 1 if step > 0 else start - stop - step - 1
    return FreeNumbers([Run(start, step, torch.sym_max(over // abs(step), 0))], range)


def sequence_of(kind: type, one: Any) -> FreeSequence | None:
    """What `list` or `tuple` gives of something of free length; None elsewhere."""
    if isinstance(one, FreeNumbers) and not one.is_plain:
        return FreeNumbers(one.runs, kind)
    if isinstance(one, FreeRows) and not one.is_plain and one.tail is None:
        return FreeRows(one.rows, kind)
    return FreeRows(one, kind) if _has_free_rows(one) else None


def _has_free_rows(one: Any) -> bool:
    return isinstance(one, Tensor) and one.dim() > 0 and isinstance(one.shape[0], torch.SymInt)
