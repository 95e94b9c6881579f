"""During capture, a slice from as many elements before the end as there are is the whole, also where there may be none.

`x[..., -n:]` of an axis of `n` elements begins at 0 at every size. torch (2.13) asks whether `-n` is negative, which it
is not where `n` is 0, and finds no beginning then: the length becomes one that only the data knows, and what needs it
is refused. By a private function: a torch without it stays as it is.

So it is of a place whose sign nobody knows (`x[:, : (n - 20) // 7 * 7 + 20]`): a file counts from the right end at any
size, and what needs the length is refused. Then the capture may take the example's side, which is a guard.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch.fx.experimental.symbolic_shapes import statically_known_true

_BEGINNING = "_compute_slice_index"


@dataclass(slots=True)
class _Sides:
    """Whether places of unknown sign have the example's, and whether there were any."""

    are_taken: bool = False
    were_asked: bool = False


_SIDES: ContextVar[_Sides | None] = ContextVar("sides of places", default=None)


@contextlib.contextmanager
def sides_of_places(*, are_taken: bool) -> Iterator[Callable[[], bool]]:
    """Within, it is noted whether a place's sign is unknown.

    Args:
        are_taken: whether such a place is before or behind the first element as in the example.

    Yields:
        Whether there was one.
    """
    sides = _Sides(are_taken)
    earlier = _SIDES.set(sides)
    try:
        yield lambda: sides.were_asked
    finally:
        _SIDES.reset(earlier)


def _by_example(size: Any, index: Any) -> Any:
    """A place whose sign torch does not know, where a capture takes the example's; None elsewhere."""
    sides = _SIDES.get()
    known = [one for one in (size, index) if isinstance(one, torch.SymInt)]
    if sides is None or not known or not all(one.node.has_hint() for one in known):
        return None
    sides.were_asked = True
    if not sides.are_taken:
        return None
    return torch.sym_min(index, size) if index >= 0 else torch.sym_max(index + size, 0)


@contextlib.contextmanager
def whole_slices() -> Iterator[None]:
    """Within, a place at or before the first element is 0."""
    original: Callable[..., Any] | None = getattr(fake_impls, _BEGINNING, None)
    if original is None:
        yield
        return

    def place(size: Any, index: Any) -> Any:
        if not isinstance(index, torch.SymInt) or not statically_known_true(index + size <= 0):
            found = original(size, index)
            return _by_example(size, index) if found is None else found
        # Where the place is 0, and so no place before the end, there are no elements.
        return 0 if statically_known_true(index <= 0) else original(size, index)

    setattr(fake_impls, _BEGINNING, place)
    try:
        yield
    finally:
        setattr(fake_impls, _BEGINNING, original)
