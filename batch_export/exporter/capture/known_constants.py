"""Tensors that forward makes of Python's numbers stay known while torch captures, and are data once data is written.

Arrives: nothing; a context is opened round a capture. Leaves: torch as it was. A grid of patches or a list of lengths
that a model writes down and reads back (`for h, w in torch.tensor([[4, 6]])`, `.tolist()`) decides nothing by data, but
torch (2.13) forgets the values of constants of more than one element, and then takes what is read for data.

torch keeps such values twice. Those of fake tensors are dropped when something is written to the tensor or to a view of
it; those of the tracer are not when it is a view (`g = torch.tensor([3]); g[0] = x.sum(); int(g[0])` is 3 for ever), so
that the tracer keeps none here. May go when torch knows constants of any size, and drops them all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._subclasses import fake_tensor
from torch.fx.experimental import proxy_tensor

MOST_ELEMENTS = 4096
"""Larger ones are computed in the file only: every operator on a known constant also runs during capture."""

_LIMIT = "CONSTANT_NUMEL_LIMIT"
_LIMITS = ((fake_tensor, MOST_ELEMENTS), (proxy_tensor, 0))


@contextlib.contextmanager
def known_constants() -> Iterator[None]:
    """While open, torch's captures remember the values of constants of up to `MOST_ELEMENTS` elements."""
    before = [(owner, getattr(owner, _LIMIT)) for owner, _ in _LIMITS if hasattr(owner, _LIMIT)]
    try:
        for owner, limit in _LIMITS:
            setattr(owner, _LIMIT, limit)
        yield
    finally:
        for owner, old in before:
            setattr(owner, _LIMIT, old)
