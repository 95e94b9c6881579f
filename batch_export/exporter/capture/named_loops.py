"""Loops over what a name stands for (`for row in x:`), where that turns out to be slices of a tensor, of any number.

Arrives: a loop that begins while torch captures a model. Leaves: the function that it stands in, by its place in its
file, whose loops over names are looked through when the model is captured again; the first capture ends there. Others
(`for layer in layers:`) are never read for it.
"""

from __future__ import annotations

import contextlib
import dis
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import CodeType
from typing import Any, TypeVar

import torch

T = TypeVar("T")
Place = tuple[str, int, str]
"""A function's file, first line and name; or the file and line of a loop, and `NUMBERS`."""
NUMBERS = "a loop over numbers"

_FOUND: ContextVar[set[Place] | None] = ContextVar("_FOUND", default=None)
_BEGINS = dis.opmap["GET_ITER"]


class LoopOverSlicesError(RuntimeError):
    """A loop goes over slices of a tensor, which was not known."""


def place_of(code: CodeType) -> Place:
    """Where a function is; what rewrites it leaves that as it is."""
    return code.co_filename, code.co_firstlineno, code.co_name


def places_in(code: CodeType) -> Iterator[Place]:
    """Where a function is, and those within it."""
    yield place_of(code)
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from places_in(one)


@contextlib.contextmanager
def slices_noted(found: set[Place]) -> Iterator[None]:
    """Within, a loop over a tensor with a free first axis ends the capture, once for each function.

    Args:
        found: gets the function; those that are there already are let be.

    NOTE: this replaces `Tensor.__iter__`.
    """
    tensors: Any = torch.Tensor
    own = tensors.__iter__

    def iterated(tensor: torch.Tensor) -> Any:
        length: Any = tensor.shape[0] if tensor.dim() else 0
        if isinstance(length, torch.SymInt):
            note(1)
        return own(tensor)

    before = _FOUND.set(found)
    tensors.__iter__ = iterated
    try:
        yield
    finally:
        tensors.__iter__ = own
        _FOUND.reset(before)


def known(run: Callable[[], T], found: set[Place]) -> T:
    """What a capture gives, which is run again when it has met such a loop.

    Args:
        run: the capture, which reads `found`.
        found: gets the functions with such loops.
    """
    while True:
        count = len(found)
        try:
            with slices_noted(found):
                made = run()
        except Exception:
            if len(found) == count:
                raise
            continue
        if len(found) == count:
            return made


def note(depth: int = 0, *, is_of_numbers: bool = False) -> None:
    """Says that the caller's caller begins a loop over slices.

    Args:
        depth: how many callers more are in between.
        is_of_numbers: whether it goes over whole numbers.

    Raises:
        LoopOverSlicesError: where that was not known.
    """
    found, frame = _FOUND.get(), sys._getframe(depth + 1)
    if found is None or frame.f_lasti < 0 or frame.f_code.co_code[frame.f_lasti] != _BEGINS:
        return
    place = place_of(frame.f_code)
    said = {place, (place[0], frame.f_lineno, NUMBERS)} if is_of_numbers else {place}
    if not said <= found:
        found |= said
        raise LoopOverSlicesError(f"{place[2]} goes over slices of a tensor, or over numbers")
