"""Tensors that a loop over a free size has read, made or begun with, and that are written to later.

Arrives: what a loop read along an axis and gives, what it went on from, and its length, when it ends. Leaves: an error
where one of the first was written to while torch captured on: what the loop gives may be rows of what it read
(`kept.append(row)`), so that in eager one changes with the other, and the operator's are copies. What a loop went on
from is what it gives where it has no round, and a copy too: that sizes without rounds have to be tried. Tensors of
torch's inference mode do not count what is written to them: there nothing is seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from batch_export.exporter.capture.begun_numbers import place_here, says_of_none, writes_so_far


class KeptRowsError(RuntimeError):
    """Rows that a loop may have kept are written to later."""


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that has been run.

    Attributes:
        kept: what it read along an axis and what it gives, and how often each had been written to when it ended.
        begun: the tensors that it went on from, in the same way.
        length: how many rounds it has.
        place: where it is, as a guard has it.
    """

    kept: tuple[tuple[Tensor, int], ...]
    begun: tuple[tuple[Tensor, int], ...]
    length: Any
    place: Any


_LOOPS: ContextVar[list[_Loop] | None] = ContextVar("_LOOPS", default=None)


@contextlib.contextmanager
def rows_watched() -> Iterator[None]:
    """Within, loops are noted, and at its end it is told what was written to since.

    Raises:
        KeptRowsError: where rows that a loop has read or made were written to behind it.
    """
    loops: list[_Loop] = []
    before = _LOOPS.set(loops)
    try:
        yield
    finally:
        _LOOPS.reset(before)
    for loop in loops:
        if _is_written(loop.kept):
            raise KeptRowsError(
                f"what a loop over a free size has read or made is written to behind it (the loop is at {loop.place}), "
                "and it may have kept rows of the same tensor"
            )
        if _is_written(loop.begun):
            says_of_none(loop.length, loop.place)


def note_read(kept: Sequence[Tensor], begun: Sequence[Tensor], length: Any) -> None:
    """Notes a loop that has been run, or a list of rows turned round.

    Args:
        kept: the tensors that it read along an axis, and those that it gives.
        begun: what it went on from.
        length: how many rounds it has.
    """
    loops = _LOOPS.get()
    if loops is not None:
        loops.append(_Loop(_counted(kept), _counted(begun), length, place_here(length)))


def _counted(tensors: Sequence[Tensor]) -> tuple[tuple[Tensor, int], ...]:
    return tuple((one, writes_so_far(one)) for one in tensors)


def _is_written(tensors: Sequence[tuple[Tensor, int]]) -> bool:
    return any(writes_so_far(one) != count for one, count in tensors)
