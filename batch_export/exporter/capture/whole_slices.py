"""During capture, a slice from as many elements before the end as there are is the whole, also where there may be none.

`x[..., -n:]` of an axis of `n` elements begins at 0 at every size. torch (2.13) asks whether `-n` is negative, which it
is not where `n` is 0, and finds no beginning then: the length becomes one that only the data knows, and what needs it
is refused. By a private function: a torch without it stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch.fx.experimental.symbolic_shapes import statically_known_true

_BEGINNING = "_compute_slice_index"


@contextlib.contextmanager
def whole_slices() -> Iterator[None]:
    """Within, a place at or before the first element is 0."""
    original: Callable[..., Any] | None = getattr(fake_impls, _BEGINNING, None)
    if original is None:
        yield
        return

    def place(size: Any, index: Any) -> Any:
        if not isinstance(index, torch.SymInt) or not statically_known_true(index + size <= 0):
            return original(size, index)
        # Where the place is 0, and so no place before the end, there are no elements.
        return 0 if statically_known_true(index <= 0) else original(size, index)

    setattr(fake_impls, _BEGINNING, place)
    try:
        yield
    finally:
        setattr(fake_impls, _BEGINNING, original)
